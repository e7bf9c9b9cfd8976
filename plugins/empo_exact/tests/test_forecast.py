"""Sizes that are announced before a solve, and what is kept after it."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from time import process_time
from types import SimpleNamespace

import pytest
from random_games import Shape, TableWorld, random_table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import SolveError
from empo_core.protocols import RunContext, Tracker, WorldModel
from empo_core.tracker_group import TrackerGroup
from empo_exact import forecast, ram
from empo_exact.algorithm import Exact
from empo_exact.exploration_progress import share_explored
from empo_exact.graph import Explored, build_graph
from empo_exact.plugin import Compute, ExactParams
from empo_exact.ram import Sizes
from empo_exact.solve import solve

ONE = Compute(workers=1)


def table_world(horizon: int = 4) -> TableWorld:
    shape = Shape(9, ("robot", "human"), (2, 3), horizon, timed=False, masked=False)
    return TableWorld(replace(random_table(shape, 2), horizon=horizon))


def library_world(name: str, **params: object) -> WorldModel:
    if name.startswith("multigrid"):
        pytest.importorskip("empo_multigrid")
    world: WorldModel = build(WorldModelRef.model_validate({"name": name, "params": params}))
    return world


def ends(value: object) -> tuple[float, float]:
    """The two ends of a range as ``empo check`` shows it."""
    text = str(value).replace(",", "").replace("far too many", "inf")
    least, _, most = text.partition(" to ")
    return float(least), float(most or least)


def test_a_small_world_is_counted_to_the_end() -> None:
    world = table_world()
    graph = build_graph(world, 4)
    algorithm = Exact(ExactParams(compute=ONE))
    found, others = algorithm.check(world), algorithm.alternatives(world)
    assert found["states"] == graph.num_states
    assert found["transitions"] == graph.num_transitions
    assert found["keep"] == "all"
    assert found["fits"] == "yes"
    assert {"reduce symmetry", "reduce lump", "1 part", "8 parts"} <= set(others) - set(found)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("multigrid/corridor_control", 20), ("multigrid/asymmetric_freeing_simple", 14)],
)
def test_a_range_that_is_extrapolated_has_the_truth_within(
    monkeypatch: pytest.MonkeyPatch, name: str, steps: int
) -> None:
    world = library_world(name, max_steps=steps)
    graph = build_graph(world, steps)
    monkeypatch.setattr("empo_exact.graph.ITEMS_PER_BLOCK", 1 << 14)
    for blocks in (4, 12):
        ticks = SimpleNamespace(monotonic=count().__next__, process_time=process_time)
        monkeypatch.setattr(forecast, "clock", ticks)
        monkeypatch.setattr(forecast, "EXPLORE_S", blocks)
        found = Exact(ExactParams(compute=ONE)).check(world)
        assert "explored" in found
        for key, truth in (("states", graph.num_states), ("transitions", graph.num_transitions)):
            least, most = ends(found[key])
            assert least <= truth <= most


def test_extrapolated_layers_hold_those_of_worlds_seen() -> None:
    worlds = {
        "asymmetric_freeing": [1, 36, 128, 224, 352, 464, 624, 1016, 1840, 3360, 5804, 8892, 11932,
                               15645, 22258, 33665, 52491, 81382, 119220, 149812, 172462],
        "corridor_bush": [1, 60, 498, 1808, 4548, 11196, 27564, 62764, 134410, 264356],
    }  # fmt: skip
    for layers in worlds.values():
        horizon = len(layers) - 1
        for depth in range(2 * horizon // 3, horizon):
            found = forecast.most_layers(layers[: depth + 1], layers[depth + 1], horizon)
            assert found[-1] >= layers[-1]
            assert found[-1] <= 6 * layers[-1]


def test_the_share_explored_is_a_share_and_near_the_truth_late() -> None:
    layers = [1, 60, 498, 1808, 4548, 11196, 27564, 62764, 134410, 264356]
    shares = [
        share_explored(Explored(layers[: d + 1], layers[d], layers[d + 1], 0), 9) for d in range(9)
    ]
    assert all(0 <= share <= 1 for share in shares)
    assert shares[5] < 0.3
    assert shares[7] == pytest.approx(62764 / 134410, abs=0.1)


@pytest.mark.parametrize("name", ["multigrid/key_and_door", "multigrid/corridor_control"])
def test_states_found_announce_no_more_than_is_needed_in_the_end(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    world, announced = library_world(name), list[int]()
    monkeypatch.setattr("empo_exact.graph.ITEMS_PER_BLOCK", 1 << 12)

    def progress(explored: Explored) -> bool:
        announced.append(ram.sizes_found(explored, world.spec).exploring_bytes)
        return True

    graph = build_graph(world, world.spec.horizon, progress=progress)
    needed = Sizes.of(graph).exploring_bytes
    assert announced[-1] == needed
    assert max(announced) < 1.05 * needed
    # Long before everything was found, most is known.
    assert max(announced[: len(announced) // 2]) > 0.4 * needed


class Watcher(Tracker):
    """Keeps what it is told about each task."""

    def __init__(self) -> None:
        self.tasks: dict[str, list[float]] = {}
        self.said: list[str] = []

    def progress(self, task: str, done: float, total: float) -> None:
        self.tasks.setdefault(task, []).append(done / total)

    def status(self, task: str, text: str) -> None:
        self.said.append(text)


def test_shares_never_go_back_and_every_stage_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world, watcher = library_world("multigrid/corridor_control"), Watcher()
    monkeypatch.setattr("empo_exact.graph.ITEMS_PER_BLOCK", 1 << 12)
    monkeypatch.setattr("empo_exact.exploration_progress.PROGRESS_S", 0.0)
    solve(world, ExactParams(compute=ONE), tracker=watcher)
    assert len(watcher.tasks["state graph"]) > 50
    for shares in watcher.tasks.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1
        assert 1 not in shares[:-1]
    assert "15 of 20 steps, 13,440 states found" in watcher.said


@pytest.mark.parametrize(("small", "keep"), [(10**8, "all"), (1000, "none")])
def test_what_is_kept_by_default_is_little(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    small: int,
    keep: str,
) -> None:
    monkeypatch.setattr(ram, "SMALL_BYTES", small)
    caplog.set_level("INFO", "empo_exact")
    world, params = table_world(), ExactParams(compute=ONE)
    tracker = TrackerGroup([])
    context = RunContext(world=world, seed=0, directory=tmp_path, tracker=tracker, resume=False)
    result = Exact(params).run(context)
    (tmp_path / "results").mkdir()
    result.save(tmp_path / "results")
    (tmp_path / "results" / "summary.json").write_text("{}")
    written = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert result.params.keep == keep
    assert f"MB in the run directory (keep: {keep})" in caplog.text
    if keep == "none":
        assert written <= 1000
    reopened = Exact(params).reopen(context)
    assert ("solved again" in caplog.text) == (keep == "none")
    assert reopened.values(1).v_r.tolist() == solve(world, params).values(1).v_r.tolist()
    assert result.at(0).V_r == solve(world, ExactParams(compute=ONE, keep="none")).at(0).V_r


def test_files_are_as_large_as_announced(tmp_path: Path) -> None:
    world = library_world("multigrid/key_and_door")
    result = solve(world, ExactParams(compute=ONE, keep="all", rollouts=0))
    result.save(tmp_path)
    written = sum(f.stat().st_size for f in (tmp_path / "tables").iterdir())
    assert ram.disk_bytes(Sizes.of(result.graph), "all") == pytest.approx(written, rel=0.1)


def test_a_disk_that_is_too_small_is_refused_with_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=10))
    with pytest.raises(SolveError, match=r"0\.00 GB.* disk.* 0\.00 GB"):
        solve(table_world(), ExactParams(compute=ONE, keep="all"), directory=tmp_path / "values")
    solve(table_world(), ExactParams(compute=ONE, keep="none"), directory=tmp_path / "values")


def test_more_than_a_gigabyte_is_written_only_after_saying_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ram, "LARGE_BYTES", 100)
    solve(table_world(), ExactParams(compute=ONE, keep="all"))
    (said,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert "GB in the run directory" in said
    assert "keep: auto" in said


def test_a_horizon_of_a_million_steps_keeps_nothing_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ram, "used_bytes", lambda: 2**28)
    graph = build_graph(table_world(1_000_000), 1_000_000)
    sizes = Sizes.of(graph)
    assert ram.resolved(sizes, ExactParams()).keep == "none"
    assert ram.ram_bytes(sizes, ram.resolved(sizes, ExactParams())) < 2**20
    asked = ExactParams(keep="all", compute=Compute(workers=1, ram_limit_gb=0.5))
    with pytest.raises(SolveError, match=r"limit is 0\.50"):
        ram.check(Sizes.of(graph), asked)


def test_advice_leaves_out_what_is_done_already(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build_graph(table_world(), table_world().spec.horizon)
    monkeypatch.setattr(ram, "used_bytes", lambda: 2**30)
    asked = ExactParams(keep="none", compute=Compute(workers=1, ram_limit_gb=0.5))
    with pytest.raises(SolveError, match=r"compute\.graph: spill[^:]* compute"):
        ram.check(Sizes.of(graph), asked)
    spills = asked.compute.model_copy(update={"graph": "spill"})
    asked = asked.model_copy(update={"compute": spills})
    with pytest.raises(SolveError, match=r"max_steps .*compute\.ram"):
        ram.check(Sizes.of(graph), asked)


def test_values_that_cannot_be_kept_are_refused_while_exploring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ram, "used_bytes", lambda: 2**20)
    world, found = library_world("multigrid/key_and_door"), Explored([1, 10], 10, 10**6, 1000)
    without = ram.sizes_found(found, world.spec).exploring_bytes + 2**28
    less, all_times = (ExactParams(keep=keep, compute=ONE) for keep in ("disk", "all"))
    ram.refuse_beyond(without, found, less, world.spec)
    with pytest.raises(SolveError, match=r"all times.*keep: disk"):
        ram.refuse_beyond(without, found, all_times, world.spec)


def test_the_limit_is_four_fifths_of_the_ram_or_what_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ram, "CGROUP_LIMIT", tmp_path / "none")
    for free, share in ((10**12, 0.8), (0, 0.0)):
        machine = SimpleNamespace(total=10**12, available=free)
        monkeypatch.setattr("psutil.virtual_memory", lambda machine=machine: machine)
        assert ram.limit(ExactParams()) == pytest.approx(share * 10**12, abs=10**10)
    given = ExactParams(compute=Compute(ram_limit_gb=2.0))
    assert ram.limit(given) == 2 << 30


def test_worlds_without_terminal_states_are_not_warned_of() -> None:
    assert "warning" not in Exact(ExactParams(compute=ONE)).check(table_world())
