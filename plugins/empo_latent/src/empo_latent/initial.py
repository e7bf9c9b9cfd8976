"""The networks of another run as the first ones of a run."""

from __future__ import annotations

import logging

from empo_core.errors import ConfigError
from empo_latent.modelfile import load_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.initial import WHERE, read_initial, require_equal_sizes

log = logging.getLogger(__name__)


def load_initial(model: LatentModel, params: LatentParams, spec: MultiTaskSpec) -> None:
    """Give a model the weights of the one that ``params.initial`` names, where there is one.

    A part that learns where episodes end is made where that one has it.

    Args:
        model: The model; one on device ``meta`` is only compared.
        params: Of the run.
        spec: What the model sees and does.

    Raises:
        ConfigError: if the other model cannot be loaded, or has other sizes or parts.
    """
    if params.initial is None:
        return
    loaded = read_initial(load_model, params.initial)
    for name in ("pictures", "shape", "active"):
        there, here = (getattr(sizes, name) for sizes in (loaded.spec, spec))
        if there != here:
            raise ConfigError(
                f"{WHERE}: {params.initial}: its tasks have {name} {there!r}, and those here "
                f"{here!r}; start from a run in tasks whose observations and actions have the same "
                "sizes"
            )
    weights = loaded.model.state_dict()
    model.fit_parts(weights)
    advice = "choose the same preset, size and losses, and what else the networks are made of"
    require_equal_sizes(model.state_dict(), weights, params.initial, advice)
    if not next(model.parameters()).is_meta:
        model.load_state_dict(weights)
        log.info("begins with the networks of another run")
