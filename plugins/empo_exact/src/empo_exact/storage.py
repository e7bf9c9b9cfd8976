"""Results on disk: plain arrays and JSON, never pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from pydantic import Field, JsonValue

from empo_core.config import HumanPriorRef
from empo_core.errors import StorageError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.runs.atomic import StrictModel
from empo_core.runs.inputs import in_this_run, without_place
from empo_core.world_content import difference, identity
from empo_exact.assumptions import Assumptions, assumed_humans, build_prior
from empo_exact.defunct import failed_problem, failing
from empo_exact.game import arrays_of, values_of
from empo_exact.graph import StateGraph
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem, pose
from empo_exact.reduction import Reduction
from empo_exact.saved_arrays import check_graph, check_humans, check_values
from empo_exact.solution import Solution
from empo_exact.sweep import Seconds
from empo_exact.values import Store, ValueStore
from empo_theory.parameters import theory_data
from empo_worlds.arrays import load_arrays, save_arrays

GRAPH = ("states", "layers", "offsets", "successor", "code", "prob", "duration")
RESULT_IS_EQUAL = {
    "compute",
    "keep",
    "rollouts",
    "inspector",
    "diagnostics",
    "coalition_goals",
    "reserve_states",
    "count_unrolled",
    "reduce",
    "check_reductions",
}
"""Parameters that change nothing about values."""
HUMANS = ("beta", "nu", "habit", "belief")
FLAGS = ("is_optimistic", "has_habit", "has_greedy")

Arrays: TypeAlias = dict[str, np.ndarray]


@dataclass(frozen=True)
class Record:
    """The run that found a solution.

    Attributes:
        params: The parameters it was solved with.
        seconds: Wall-clock time of the parts of the solve.
        seed: Seeds rollouts.
        reductions: The reductions by which fewer states were solved than there are.
    """

    params: ExactParams
    seconds: Seconds
    seed: int
    reductions: tuple[Reduction, ...] = ()


class _Metadata(StrictModel):
    world: dict[str, JsonValue]
    human_prior: bool
    habit_prior: bool
    params: dict[str, JsonValue]
    num_expanded: int
    times: list[int]
    values: list[str] | None  # The folder and the digest of those that were kept on disk.
    seconds: dict[str, float]
    seed: int
    reductions: list[dict[str, JsonValue]] = Field(default_factory=list)


def save(solution: Solution, record: Record, directory: Path) -> None:
    """Write graph, values and parameters into ``directory / "tables"``.

    Goals are stored human by human; times one after another, ``time_<t>_v_r`` and so on. Values
    that were kept on disk stay where they are, and the tables say where that is.
    """
    problem, graph = solution.problem, solution.graph
    arrays: Arrays = {f"graph_{name}": getattr(graph, name) for name in GRAPH}
    arrays |= {f"humans_{name}": getattr(problem.humans, name) for name in HUMANS}
    arrays["start"] = problem.start
    place = solution.store.place(directory)
    if place is None:
        arrays |= _tables(solution.store, "time")
        if solution.failed is not None:
            arrays |= _tables(solution.failed.store, "failed")
    metadata = _Metadata(
        world=identity(solution.problem.world),
        human_prior=problem.prior is not None,
        habit_prior=problem.habit is not None,
        params=record.params.model_dump(mode="json"),
        num_expanded=graph.num_expanded,
        times=list(solution.times),
        values=None if place is None else list(place),
        seconds=vars(record.seconds),
        seed=record.seed,
        reductions=[reduction.data for reduction in record.reductions],
    )
    save_arrays(directory / "tables", arrays, metadata.model_dump())


def read(
    directory: Path,
    world: WorldModel,
    human_prior: HumanPrior | None,
    habit_prior: HumanPrior | None,
) -> tuple[Solution, Record]:
    """A solution and the run that found it, from the folder given to ``save``.

    Raises:
        StorageError: if the files are missing or damaged, or belong to another world.
    """
    arrays, data = load_arrays(directory / "tables")
    try:
        metadata = _Metadata.model_validate(data)
        _check_world(metadata.world, world)
        params = ExactParams.model_validate(in_this_run(metadata.params, directory.parent))
        assumed = Assumptions(
            habit_prior=_prior(
                "habit_prior", habit_prior, params.habit, world, is_needed=metadata.habit_prior
            ),
            human_prior=_prior(
                "human_prior",
                human_prior,
                params.human_prior,
                world,
                is_needed=metadata.human_prior,
            ),
        )
        problem = _problem(arrays, metadata.num_expanded, world, params, assumed)
        store, failed = _store(arrays, metadata, directory, "time"), None
        if params.defunct.rate > 0:
            failed = Solution(
                failed_problem(problem, params.defunct),
                _store(arrays, metadata, directory, "failed"),
            )
            problem = failing(problem, params.defunct.rate)
        for saved in (store, *(() if failed is None else (failed.store,))):
            _check_times(saved, problem)
        solution = Solution(problem, store, failed)
        reductions = tuple(Reduction.of(entry) for entry in metadata.reductions)
        record = Record(params, Seconds(**metadata.seconds), metadata.seed, reductions)
        return solution, record
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{directory / 'tables'} is not a saved result of this solver ({error}); save it again"
        ) from error


def _tables(store: Store, kind: str) -> Arrays:
    """The values of all times, by names that begin with what kind they are."""
    return {
        f"{kind}_{time}_{name}": array
        for time in store.times
        for name, array in arrays_of(store.at(time)).items()
    }


def _problem(
    arrays: Arrays, num_expanded: int, world: WorldModel, params: ExactParams, assumed: Assumptions
) -> Problem:
    check_graph(arrays, world.spec, num_expanded)
    parts = {name: arrays[f"graph_{name}"] for name in GRAPH}
    graph = StateGraph(spec=world.spec, num_expanded=num_expanded, **parts)
    problem = pose(world, graph, params, assumed, start=arrays["start"])
    # The caller's functions of states are not saved, but what they answered is.
    beta, nu, habit, belief = (arrays[f"humans_{name}"] for name in HUMANS)
    humans = assumed_humans(beta, nu, habit, belief, params.theory)
    check_humans(humans, problem)
    return replace(problem, humans=humans, habit=assumed.habit_prior)


def _store(arrays: Arrays, metadata: _Metadata, directory: Path, kind: str) -> ValueStore:
    """The values of all times, of a kind as in ``_tables``."""
    if metadata.values is None:
        store = ValueStore("all", None, "")
        for time in metadata.times:
            prefix = f"{kind}_{time}_"
            mine = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            store.put(time, values_of(mine))
        return store
    folder, digest = metadata.values
    store = ValueStore("disk", directory / folder, digest)
    if kind == "failed":
        store = store.sibling(kind)
    last = max(metadata.times)
    if store.recover(last) != min(metadata.times):
        raise StorageError(f"the values of {last + 1} times are not in {directory / folder}")
    return store


def _check_times(store: Store, problem: Problem) -> None:
    """Refuse values that are not those of all states that there can be at a time."""
    for time in store.times:
        has_horizon = problem.horizon is not None
        count = problem.graph.within(time) if has_horizon else problem.graph.num_states
        goals = problem.game.achieved.shape[1]
        check_values(store.at(time), count, goals, problem.symbols.rho)


def _check_world(saved: dict[str, JsonValue], world: WorldModel) -> None:
    differs = difference(saved, identity(world))
    if differs is not None:
        raise StorageError(
            f"these tables belong to another world than this {world.spec.name!r}: {differs}"
        )


def _prior(
    key: str,
    supplied: HumanPrior | None,
    named: HumanPriorRef | None,
    world: WorldModel,
    *,
    is_needed: bool,
) -> HumanPrior | None:
    """The prior a result was solved with: the caller's, or the one its params name."""
    if not is_needed:
        return None
    prior = supplied or build_prior(named, world)
    if prior is None:
        raise StorageError(f"this was solved with a {key} of the caller's; pass it as {key} again")
    return prior


def problem_digest(world: WorldModel, problems: Iterable[Problem], params: ExactParams) -> str:
    """Identifies a problem but for its priors, so that values on disk are not taken for another's.

    What priors answer is compared time by time; see ``answers``.

    Args:
        world: The world.
        problems: The problem of each part of its graph.
        params: Theory and solver parameters.
    """
    about = without_place(params).model_dump(mode="json", exclude=RESULT_IS_EQUAL)
    about["theory"] = theory_data(params.theory)
    for key in ("counts", "defunct"):  # As before these keys were there.
        if getattr(params, key) == getattr(ExactParams(), key):
            del about[key]
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(json.dumps(identity(world)).encode())
    for problem in problems:
        graph = problem.graph
        for array in (
            graph.states,
            graph.layers,
            graph.offsets,
            graph.successor,
            graph.code,
            graph.prob,
            graph.duration,
            problem.game.achieved,
            *(getattr(problem.humans, name) for name in (*HUMANS, *FLAGS)),
        ):
            digest.update(np.ascontiguousarray(array).data)
        digest.update(repr((problem.prior is None, problem.habit is None)).encode())
    return digest.hexdigest()
