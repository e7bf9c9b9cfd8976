"""Results on disk: plain arrays and JSON, never pickle."""

from __future__ import annotations

import reprlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from empo_core.config import HumanPriorRef
from empo_core.errors import StorageError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.storage.arrays import load_arrays, save_arrays
from empo_core.types import WorldSpec
from empo_exact.graph import StateGraph
from empo_exact.induction import Seconds
from empo_exact.kernel_data import Humans
from empo_exact.plugin import ExactParams
from empo_exact.setup import Assumptions, build_prior
from empo_exact.solver import pose
from empo_exact.values import Values, ValueStore

if TYPE_CHECKING:
    from empo_exact.result import ExactResult

GRAPH = ("states", "layers", "offsets", "successor", "code", "prob", "duration")


def save(result: ExactResult, directory: Path) -> None:
    """Write graph, values and parameters into ``directory / "tables"``.

    Goals are stored human by human; times one after another, ``time_<t>_v_r`` and so on. Values
    that were kept on disk stay where they are, and the tables say where that is.
    """
    arrays: dict[str, np.ndarray] = {f"graph_{name}": getattr(result.graph, name) for name in GRAPH}
    arrays |= {f"humans_{name}": array for name, array in result.problem.humans._asdict().items()}
    place = result.store.place(directory)
    for time in result.times if place is None else ():
        for name, array in result.store.at(time)._asdict().items():
            arrays[f"time_{time}_{name}"] = array
    metadata = {
        "world": _identity(result.spec),
        "human_prior": result.problem.prior is not None,
        "habit_prior": result.problem.habit is not None,
        "params": result.params.model_dump(mode="json"),
        "num_expanded": result.graph.num_expanded,
        "times": result.times,
        "values": place,
        "seconds": vars(result.seconds),
        "seed": result.seed,
    }
    save_arrays(directory / "tables", arrays, metadata)


def load(
    directory: Path,
    world: WorldModel,
    human_prior: HumanPrior | None = None,
    habit_prior: HumanPrior | None = None,
) -> ExactResult:
    """A result that ``save`` wrote.

    Args:
        directory: The folder that was given to ``save``.
        world: The world that was solved.
        human_prior: The prior that it was solved with, if ``solve`` was given one.
        habit_prior: The habitual policy that it was solved with, if ``solve`` was given one.

    Raises:
        StorageError: The files are missing or damaged, or belong to another world.
    """
    from empo_exact.result import ExactResult

    arrays, metadata = load_arrays(directory / "tables")
    try:
        return ExactResult(*_restore(directory, arrays, metadata, world, human_prior, habit_prior))
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{directory / 'tables'} is not a saved result of this solver ({error}); save it again"
        ) from error


def _restore(
    directory: Path,
    arrays: dict[str, np.ndarray],
    metadata: dict[str, Any],
    world: WorldModel,
    human_prior: HumanPrior | None,
    habit_prior: HumanPrior | None,
) -> tuple[Any, ...]:
    _check_world(arrays, metadata["world"], world)
    params = ExactParams.model_validate(metadata["params"])
    human_prior = _prior(human_prior, params.human_prior, world, metadata, "human_prior")
    habit_prior = _prior(habit_prior, params.habit, world, metadata, "habit_prior")
    graph = StateGraph(
        spec=world.spec,
        num_expanded=metadata["num_expanded"],
        **{name: arrays[f"graph_{name}"] for name in GRAPH},
    )
    problem = pose(world, graph, params, Assumptions(habit_prior=habit_prior), human_prior)
    humans = Humans(**{name: arrays[f"humans_{name}"] for name in Humans._fields})
    if metadata["values"] is not None:
        folder, digest = metadata["values"]
        store = ValueStore("disk", directory / folder, digest)
        last = max(metadata["times"])
        if store.recover(last) != min(metadata["times"]):
            raise StorageError(f"the values of {last + 1} times are not in {directory / folder}")
    else:
        store = ValueStore("all", None, "")
        for time in metadata["times"]:
            fields = (arrays[f"time_{time}_{name}"] for name in Values._fields)
            store.put(time, Values(*fields))
    return (
        replace(problem, humans=humans),
        store,
        params,
        Seconds(**metadata["seconds"]),
        metadata["seed"],
    )


def _identity(spec: WorldSpec) -> dict[str, Any]:
    """What tells a world from others, as JSON data; the order of keys says what to name first."""
    return {
        "name": spec.name,
        "horizon": spec.horizon,
        "agents": [[agent.name, agent.role, list(agent.actions)] for agent in spec.agents],
        "goals": [[goal.human, goal.name, goal.weight] for goal in spec.goals],
    }


def _check_world(arrays: dict[str, np.ndarray], saved: dict[str, Any], world: WorldModel) -> None:
    here = _identity(world.spec)
    for key in here:
        if saved[key] != here[key]:
            raise StorageError(
                f"these tables belong to another world than this {world.spec.name!r}: its {key} "
                f"was {reprlib.repr(saved[key])}, not {reprlib.repr(here[key])}"
            )
    if not np.array_equal(arrays["graph_states"][0], world.initial_state().numpy()):
        raise StorageError(
            f"these tables belong to another world than this {world.spec.name!r}: it starts in "
            "another state"
        )


def _prior(
    given: HumanPrior | None,
    named: HumanPriorRef | None,
    world: WorldModel,
    metadata: dict[str, Any],
    key: str,
) -> HumanPrior | None:
    """The prior a result was solved with: the caller's, or the one its params name."""
    if not metadata[key]:
        return None
    prior = given or build_prior(named, world)
    if prior is None:
        raise StorageError(f"this was solved with a {key} of the caller's; pass it as {key} again")
    return prior
