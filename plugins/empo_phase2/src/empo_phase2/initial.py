"""The networks and tables of another run as the first ones of a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from empo_core.errors import ConfigError
from empo_core.protocols import ValueNetwork, WorldModel
from empo_core.types import Quantity
from empo_core.world_content import difference
from empo_learning.initial import WHERE, read_initial, require_equal_params, require_equal_sizes
from empo_learning.saved_model import read_model, rebuilding
from empo_phase2.params import Phase2Params
from empo_phase2.policyfile import identity_for

log = logging.getLogger(__name__)


def load_initial(
    networks: Mapping[Quantity, ValueNetwork], params: Phase2Params, world: WorldModel
) -> None:
    """Give networks the weights of those that ``params.initial`` names, where there are any.

    Args:
        networks: The networks and tables of the run.
        params: Of the run.
        world: What is played: the run's world, or an ensemble.

    Raises:
        ConfigError: if the other model cannot be read; its networks are described otherwise or
            have other sizes, or are missing; or it has a table, and was learned in another world.
    """
    path = params.initial
    if path is None:
        return
    saved = read_initial(lambda file: read_model(file, "phase2", NoneType), path)
    here = params.model_dump(mode="json", include={"values"})["values"]
    require_equal_params(here, saved.params.get("values"), "values", path)
    is_fixed = any(network.is_table for network in networks.values())
    recorded, identity = saved.world or {}, identity_for(world, params.replay.store)
    if is_fixed and (differs := difference(recorded, identity)) is not None:
        raise ConfigError(
            f"{WHERE}: {path}: its tables list states of {recorded.get('name')!r}, which differs "
            f"from this {world.spec.name!r}: {differs}; begin with tables of the same world, or "
            "with networks"
        )
    states: dict[Quantity, dict[str, Any]] = {
        quantity: {
            name.removeprefix(f"{quantity}."): tensor
            for name, tensor in saved.state.items()
            if name.startswith(f"{quantity}.")
        }
        for quantity in networks
    }
    for quantity, network in networks.items():
        if network.state_dict() and not states[quantity]:
            raise ConfigError(
                f"{WHERE}: {path}: has no weights of {quantity}; it was written by another version "
                "of empo-phase2, or changed; begin with another run"
            )
        if not network.is_table:
            ours, theirs = (
                {f"{quantity}.{name}": tensor for name, tensor in state.items()}
                for state in (network.state_dict(), states[quantity])
            )
            advice = "begin with a run in a world of the same agents, goals and features"
            require_equal_sizes(ours, theirs, path, advice)
    read_initial(lambda file: _load(networks, states, file), path)
    log.info("begins with the networks of another run")


def _load(
    networks: Mapping[Quantity, ValueNetwork],
    states: Mapping[Quantity, Mapping[str, Any]],
    path: Path,
) -> None:
    """Give all networks their states, which are those of a file."""
    with rebuilding(path, "empo-phase2"):
        for quantity, network in networks.items():
            network.load_state_dict(states[quantity])
