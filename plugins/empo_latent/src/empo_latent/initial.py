"""The networks of another run as the first ones of a run."""

from __future__ import annotations

import logging

from empo_core.errors import ConfigError, StorageError
from empo_latent.modelfile import load_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec

log = logging.getLogger(__name__)

WHERE = "algorithm.params.initial"


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
    try:
        loaded = load_model(params.initial)
    except StorageError as error:
        raise ConfigError(f"{WHERE}: {error}") from error
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
    there, here = (
        {name: "x".join(map(str, tensor.shape)) or "1" for name, tensor in state.items()}
        for state in (weights, model.state_dict())
    )
    for name in dict.fromkeys([*here, *there]):
        if there.get(name) != here.get(name):
            raise ConfigError(
                f"{WHERE}: {params.initial}: {name} is {there.get(name, 'missing')} there and "
                f"{here.get(name, 'missing')} here; choose the same preset, size and losses, and "
                "what else the networks are made of"
            )
    if not next(model.parameters()).is_meta:
        model.load_state_dict(weights)
        log.info("begins with the networks of another run")
