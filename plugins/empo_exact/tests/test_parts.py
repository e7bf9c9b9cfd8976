"""However a graph is cut into parts, every number comes out the same to the last bit."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from comparison import exact_params, theories
from hypothesis import given, settings
from hypothesis import strategies as st
from random_games import Shape, Table, TableWorld, random_table, tables

from empo_core.config import merged
from empo_core.errors import EmpoError, SolveError, StorageError
from empo_core.protocols import Tracker, WorldModel
from empo_exact.assumptions import Assumptions
from empo_exact.game import Values
from empo_exact.parts.partition import choose_partition, slow_words
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import FileStore
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory

SHAPE = Shape(60, ("human", "robot", "human"), (3, 3, 2), 4, timed=True, masked=True)
TIMED = random_table(SHAPE, 3)
GOALS = TableWorld(TIMED).spec.goals
ENDLESS = random_table(Shape(40, ("human", "robot"), (3, 2), None, timed=True, masked=True), 3)
"""A game without a horizon."""


def in_parts(params: ExactParams, **compute: Any) -> ExactParams:
    chosen = {"workers": 1, **compute}
    return params.model_copy(update={"compute": Compute.model_validate(chosen)})


def assert_same(actual: ExactResult, plain: ExactResult) -> None:
    """All values at all times, by state row, to the last bit."""
    assert actual.graph.num_states == plain.graph.num_states
    assert actual.graph.num_transitions == plain.graph.num_transitions
    assert actual.times == plain.times
    number = plain.find_rows(actual.graph.states)
    for time in plain.times:
        one, other = actual.store.at(time), plain.store.at(time)
        assert len(one.v_r) == len(other.v_r)
        for name in Values._fields:
            ours, theirs = getattr(one, name), getattr(other, name)
            assert np.array_equal(ours, theirs[number[: len(ours)]], equal_nan=True), (time, name)


def assert_same_start(actual: ExactResult, plain: ExactResult) -> None:
    one, other = actual.at(0), plain.at(0)
    for name in ("V_r", "U_r", "Q_r", "pi_r", "V_m", "V_e", "pi_h"):
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name
    assert (actual.sizes.states, actual.sizes.transitions) == (
        plain.graph.num_states,
        plain.graph.num_transitions,
    )


def outcome(table: Table, params: ExactParams) -> ExactResult | str:
    try:
        return solve(TableWorld(table), params)
    except EmpoError as error:
        return str(error)


@settings(max_examples=40)
@given(
    table=st.one_of(tables(acyclic=False), tables(acyclic=True)),
    params=theories(),
    parts=st.sampled_from([1, 2, 5, 8]),
)
def test_values_of_random_games_do_not_depend_on_the_parts(
    table: Table, params: CompleteTheory, parts: int
) -> None:
    exact = exact_params(params, keep="all", count_unrolled=False)
    plain, found = outcome(table, exact), outcome(table, in_parts(exact, parts=parts))
    if isinstance(plain, str) or isinstance(found, str):
        assert isinstance(plain, str)
        assert isinstance(found, str)
        assert plain.split(". The state is")[0] == found.split(". The state is")[0]
    else:
        assert_same(found, plain)


@pytest.mark.parametrize("keep", ["all", "disk"])
def test_spilled_parts_give_the_same_values_and_leave_no_files_once_these_are_saved(
    tmp_path: Path, keep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("ITEMS_PER_BLOCK", "PIECE"):  # So that layers are in several pieces.
        monkeypatch.setattr(f"empo_exact.parts.exploration.{limit}", 40)
    world, params = TableWorld(TIMED), ExactParams.model_validate({"keep": keep})
    plain = solve(world, params, directory=tmp_path / "plain")
    found = solve(world, in_parts(params, graph="spill", parts=5), directory=tmp_path / "parts")
    assert_same(found, plain)
    found.save(tmp_path / "parts")
    assert not (tmp_path / "parts" / "parts").exists()


def test_the_numbers_of_states_do_not_depend_on_the_parts() -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="all")
    one, seven = (solve(world, in_parts(params, parts=parts)) for parts in (1, 7))
    assert np.array_equal(one.graph.states, seven.graph.states)
    assert np.array_equal(one.graph.successor, seven.graph.successor)


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["memory", pytest.param("spill", marks=SLOW)])
def test_processes_find_the_same_start(tmp_path: Path, graph: str) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="none")
    plain = solve(world, ExactParams(keep="all"))
    shared = in_parts(params, processes=3, parts=4, graph=graph)
    found = solve(world, shared, directory=tmp_path / "values")
    assert_same_start(found, plain)
    found.save(tmp_path / "results")
    assert not (tmp_path / "values").exists()


def test_every_task_is_shown_to_its_end() -> None:
    last: dict[str, tuple[float, float]] = {}

    class Tasks(Tracker):
        def progress(self, task: str, done: float, total: float) -> None:
            last[task] = done, total

    solve(TableWorld(TIMED), in_parts(ExactParams(keep="none"), parts=3), tracker=Tasks())
    assert {"state graph", "transitions of parts", "backward induction"} <= set(last)
    assert all(done == total for done, total in last.values()), last


class At(Tracker):
    """Does something once, when a sweep is done."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        self.step, self.act, self.done = step, act, False

    def log(self, step: int, metrics: Any) -> None:
        """A sweep is done."""
        if step == self.step and not self.done:
            self.done = True
            self.act()


def interrupt(world: WorldModel, params: ExactParams, directory: Path, step: int) -> None:
    """Solve a world until so many sweeps are done."""

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(world, params, directory=directory, tracker=At(step, stop))


class Steps(Tracker):
    """Sweeps that were done."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def log(self, step: int, metrics: Any) -> None:
        """A sweep is done."""
        self.seen.append(step)


def workers() -> list[psutil.Process]:
    """The processes that solve."""
    return [child for server in psutil.Process().children() for child in server.children()]


def kill_a_worker() -> None:
    os.kill(workers()[-1].pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("table", "graph"),
    [
        (TIMED, "spill"),
        pytest.param(TIMED, "memory", marks=SLOW),
        pytest.param(ENDLESS, "spill", marks=SLOW),
        pytest.param(ENDLESS, "memory", marks=SLOW),
    ],
    ids=["timed-spill", "timed-memory", "endless-spill", "endless-memory"],
)
def test_a_process_that_is_killed_changes_nothing(tmp_path: Path, table: Table, graph: str) -> None:
    world, params = TableWorld(table), ExactParams(keep="none")
    shared = in_parts(params, processes=2, graph=graph, checkpoint_s=0)
    tracker = At(2, kill_a_worker)
    found = solve(world, shared, directory=tmp_path, tracker=tracker)
    assert tracker.done
    assert_same_start(found, solve(world, ExactParams(keep="all")))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_an_interrupted_solve_goes_on_from_its_checkpoint(
    tmp_path: Path, graph: str, step: int
) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="none")
    chosen = in_parts(params, graph=graph, parts=3, checkpoint_s=0)
    interrupt(world, chosen, tmp_path, step)
    steps = Steps()
    found = solve(world, chosen, directory=tmp_path, tracker=steps, resume=True)
    assert steps.seen == list(range(step, 5))  # That of the checkpoint is logged again.
    assert_same_start(found, solve(world, ExactParams(keep="all")))


@pytest.mark.parametrize("keep", ["none", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_without_a_horizon_a_solve_goes_on_from_its_last_sweep(
    tmp_path: Path, graph: str, keep: str
) -> None:
    world, params = TableWorld(ENDLESS), ExactParams.model_validate({"keep": keep})
    chosen = in_parts(params, graph=graph, parts=3, checkpoint_s=0)
    plain, step = solve(world, ExactParams(keep="all")), 7
    interrupt(world, chosen, tmp_path, step)
    steps = Steps()
    found = solve(world, chosen, directory=tmp_path, tracker=steps, resume=True)
    assert steps.seen[0] == step
    assert len(steps.seen) > 1
    assert_same_start(found, plain)
    if keep == "all":
        assert_same(found, plain)


@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_an_interrupted_solve_that_keeps_everything_has_all_times_in_the_end(
    tmp_path: Path, graph: str
) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="all")
    chosen = in_parts(params, graph=graph, parts=3, checkpoint_s=0)
    interrupt(world, chosen, tmp_path, 3)
    assert_same(solve(world, chosen, directory=tmp_path, resume=True), solve(world, params))


@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_a_checkpoint_of_other_parts_is_not_used(tmp_path: Path, graph: str) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="none")

    def tear_and_stop() -> None:
        for torn in (tmp_path / "parts").glob("graph/*/successor.npy"):
            torn.write_bytes(torn.read_bytes()[:-8])
        raise KeyboardInterrupt

    chosen = in_parts(params, graph=graph, parts=5, checkpoint_s=0)
    with pytest.raises(KeyboardInterrupt):
        solve(world, chosen, directory=tmp_path, tracker=At(2, tear_and_stop))
    other = in_parts(params, graph=graph, parts=3, checkpoint_s=0)
    found = solve(world, other, directory=tmp_path, resume=True)
    assert_same_start(found, solve(world, ExactParams(keep="all")))


def test_files_of_another_problem_are_left_alone(tmp_path: Path) -> None:
    world, chosen = TableWorld(TIMED), in_parts(ExactParams(keep="none"), graph="spill", parts=3)
    interrupt(world, chosen, tmp_path, 2)
    assumed = Assumptions(beta_h=lambda states: torch.full((len(states), len(GOALS)), 3.0))
    for resume in (False, True):
        with pytest.raises(StorageError, match="another problem"):
            solve(world, chosen, assumed, directory=tmp_path, resume=resume)
    assert_same_start(
        solve(world, chosen, directory=tmp_path, resume=True), solve(world, ExactParams(keep="all"))
    )


def test_a_torn_file_is_refused_and_explored_again(tmp_path: Path) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="none")
    chosen = in_parts(params, graph="spill", parts=3, checkpoint_s=0)

    def tear_and_stop() -> None:
        torn = next((tmp_path / "parts" / "graph").glob("*/successor.npy"))
        torn.write_bytes(torn.read_bytes()[:-8])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(world, chosen, directory=tmp_path, tracker=At(2, tear_and_stop))
    found = solve(world, chosen, directory=tmp_path, resume=True)
    assert_same_start(found, solve(world, ExactParams(keep="all")))


def test_files_of_another_problem_are_not_used(tmp_path: Path) -> None:
    one = FileStore(tmp_path, "one")
    one.put("graph", 0, {"states": np.zeros(3)})
    one.flush()
    with pytest.raises(StorageError, match="another problem"):
        FileStore(tmp_path, "other").get("graph", 0)


def test_nothing_that_is_not_ours_is_overwritten(tmp_path: Path) -> None:
    foreign = tmp_path / "parts" / "graph" / "part-00000"
    foreign.mkdir(parents=True)
    (foreign / "letter.txt").write_text("mine")
    with pytest.raises(StorageError, match="part-00000"):
        solve(
            TableWorld(TIMED),
            in_parts(ExactParams(keep="none"), graph="spill", parts=2),
            directory=tmp_path,
        )
    assert (foreign / "letter.txt").read_text() == "mine"


@contextmanager
def files_of(most_bytes: int) -> Iterator[None]:
    """Nothing can be written into longer files, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_a_disk_that_fills_while_solving_loses_nothing(tmp_path: Path, graph: str) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="none")
    chosen = in_parts(params, graph=graph, parts=3, checkpoint_s=0)
    with (
        ExitStack() as full,
        pytest.raises(StorageError, match="written: File too large"),
    ):
        solve(
            world,
            chosen,
            directory=tmp_path,
            tracker=At(2, lambda: full.enter_context(files_of(200))),
        )
    steps = Steps()
    found = solve(world, chosen, directory=tmp_path, tracker=steps, resume=True)
    assert steps.seen[0] == 2
    assert_same_start(found, solve(world, ExactParams(keep="all")))


def test_a_disk_that_is_full_before_the_first_sweep_is_one_sentence(tmp_path: Path) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="none")
    chosen = in_parts(params, graph="spill", parts=2)
    with files_of(200), pytest.raises(StorageError, match="written: File too large"):
        solve(world, chosen, directory=tmp_path)
    found = solve(world, chosen, directory=tmp_path, resume=True)
    assert_same_start(found, solve(world, ExactParams(keep="all")))


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_a_disk_that_fills_in_one_of_several_processes_loses_nothing(
    tmp_path: Path, graph: str
) -> None:
    world, params = TableWorld(ENDLESS), ExactParams(keep="none")
    shared = in_parts(params, processes=2, graph=graph, checkpoint_s=0)

    def fill() -> None:
        psutil.Process(workers()[-1].pid).rlimit(psutil.RLIMIT_FSIZE, (200, 200))

    with pytest.raises(StorageError, match="written: File too large"):
        solve(world, shared, directory=tmp_path, tracker=At(2, fill))
    found = solve(world, shared, directory=tmp_path, resume=True)
    assert_same_start(found, solve(world, ExactParams(keep="all")))


@pytest.mark.parametrize("name", ["", "found", "graph", "halo", "values-00001"])
def test_a_foreign_file_where_a_folder_is_wanted_is_one_sentence(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / "parts" / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("mine")
    with pytest.raises(StorageError, match=str(foreign)) as refusal:
        solve(
            TableWorld(TIMED),
            in_parts(ExactParams(keep="none"), graph="spill", parts=2),
            directory=tmp_path,
        )
    assert "\n" not in str(refusal.value)
    assert foreign.read_text() == "mine"


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b""), Path.unlink])
def test_a_file_that_is_damaged_meanwhile_is_one_sentence(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    def act() -> None:
        damage(tmp_path / "parts" / "graph" / "part-00001" / "successor.npy")

    with pytest.raises(StorageError, match="graph/part-00001") as refusal:
        solve(
            TableWorld(TIMED),
            in_parts(ExactParams(keep="none"), graph="spill", parts=2),
            directory=tmp_path,
            tracker=At(2, act),
        )
    assert "\n" not in str(refusal.value)


def test_too_little_ram_is_refused_with_numbers(tmp_path: Path) -> None:
    used = psutil.Process().memory_info().rss / 2**30
    for limit, message in ((0.1, "holds .* GiB"), (used + 0.03, "takes 0.06 GiB")):
        chosen = in_parts(ExactParams(keep="none"), graph="spill", ram_limit_gb=limit)
        with pytest.raises(SolveError, match=message):
            solve(TableWorld(TIMED), chosen, directory=tmp_path)


@given(
    rows=st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=1, max_size=40, unique=True),
    parts=st.integers(1, 9),
)
def test_parts_are_ranges_of_equal_size(rows: list[tuple[int, int, int]], parts: int) -> None:
    array, words = np.array(rows, np.int16), np.array([2, 0, 1])
    partition = choose_partition([array], parts, words)
    owners = partition.owners(array)
    sizes = np.bincount(owners, minlength=partition.count)
    assert partition.count == min(parts, len(rows))
    assert sizes.max() - sizes.min() <= 1
    by_key = owners[np.lexsort(array[:, words[::-1]].T)]
    assert (np.diff(by_key) >= 0).all()


def test_words_that_change_least_come_first() -> None:
    assert slow_words(np.array([5, 0, 7, 1])).tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "all"}, "keep: all"),
        ({"rollouts": 1}, "rollouts needs"),
        ({"inspector": True}, "inspector needs"),
        ({"count_unrolled": True}, "count_unrolled needs"),
        ({"compute": {"parts": 1}}, "2 processes"),
    ],
)
def test_options_that_processes_cannot_have_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SolveError, match=message):
        solve(TableWorld(TIMED), ExactParams.model_validate(options), peers=Peers(0, 2))
    with pytest.raises(ValueError, match=message):
        ExactParams.model_validate(merged(options, {"compute": {"processes": 2}}))


def test_processes_that_solve_together_start_no_others(tmp_path: Path) -> None:
    shared = in_parts(ExactParams(keep="none"), processes=2)
    with pytest.raises(SolveError, match="together"):
        solve(TableWorld(TIMED), shared, directory=tmp_path, peers=Peers(0, 2))
