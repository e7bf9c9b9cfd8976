"""Results on disk: plain arrays and JSON, never pickle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from empo_core.errors import StorageError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.storage import load_arrays, save_arrays
from empo_exact.game import Humans
from empo_exact.graph import StateGraph
from empo_exact.induction import Seconds
from empo_exact.plugin import ExactParams
from empo_exact.problem import Assumptions
from empo_exact.solver import pose
from empo_exact.values import Values, ValueStore

if TYPE_CHECKING:
    from empo_exact.result import ExactResult

GRAPH = ("states", "layers", "offsets", "successor", "code", "prob", "duration")


def save(result: ExactResult, directory: Path) -> None:
    """Write graph, values and parameters into ``directory / "tables"``.

    Goals are stored human by human; times one after another, ``time_<t>_v_r`` and so on.
    """
    arrays: dict[str, np.ndarray] = {f"graph_{name}": getattr(result.graph, name) for name in GRAPH}
    arrays |= {f"humans_{name}": array for name, array in result.problem.humans._asdict().items()}
    for time in result.times:
        for name, array in result.store.at(time)._asdict().items():
            arrays[f"time_{time}_{name}"] = array
    metadata = {
        "world": result.spec.name,
        "params": result.params.model_dump(mode="json"),
        "num_expanded": result.graph.num_expanded,
        "times": result.times,
        "seconds": vars(result.seconds),
    }
    save_arrays(directory / "tables", arrays, metadata)


def load(directory: Path, world: WorldModel, human_prior: HumanPrior | None = None) -> ExactResult:
    """A result that ``save`` wrote.

    Args:
        directory: The folder that was given to ``save``.
        world: The world that was solved.
        human_prior: The prior that it was solved with, if one was given.

    Raises:
        StorageError: The files are missing or damaged, or belong to another world.
    """
    from empo_exact.result import ExactResult

    arrays, metadata = load_arrays(directory / "tables")
    try:
        return ExactResult(*_restore(arrays, metadata, world, human_prior))
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{directory / 'tables'} is not a saved result of this solver ({error}); save it again"
        ) from error


def _restore(
    arrays: dict[str, np.ndarray],
    metadata: dict[str, Any],
    world: WorldModel,
    human_prior: HumanPrior | None,
) -> tuple[Any, ...]:
    if metadata["world"] != world.spec.name or not np.array_equal(
        arrays["graph_states"][0], world.initial_state().numpy()
    ):
        raise StorageError(
            f"these tables belong to {metadata['world']!r}, not to this {world.spec.name!r}"
        )
    params = ExactParams.model_validate(metadata["params"])
    graph = StateGraph(
        spec=world.spec,
        num_expanded=metadata["num_expanded"],
        **{name: arrays[f"graph_{name}"] for name in GRAPH},
    )
    problem = pose(world, graph, params, Assumptions(), human_prior)
    humans = Humans(**{name: arrays[f"humans_{name}"] for name in Humans._fields})
    store = ValueStore("all", None, "")
    for time in metadata["times"]:
        fields = (arrays[f"time_{time}_{name}"] for name in Values._fields)
        store.put(time, Values(*fields))
    return replace(problem, humans=humans), store, params, Seconds(**metadata["seconds"])
