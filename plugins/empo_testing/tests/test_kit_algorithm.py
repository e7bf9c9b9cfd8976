"""The algorithm kit passes a right algorithm and fails each one broken on purpose."""

import itertools
import pickle
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import RenderableType
from rich.table import Table

from empo_core.errors import ConfigError
from empo_core.protocols import Algorithm, RunContext, WorldModel
from empo_testing.algorithm import AlgorithmTests
from empo_testing.worlds import TinyWorld

Runner = Callable[..., set[str]]


class Mean:
    """A right result: how often a random walk was somewhere."""

    def __init__(self, visits: dict[str, int]) -> None:
        self.visits = visits
        self.seconds = time.perf_counter()

    def summary(self) -> dict[str, Any]:
        return {"visits": dict(self.visits), "seconds": self.seconds}

    def report(self) -> RenderableType:
        table = Table("state", "visits")
        for state, count in self.visits.items():
            table.add_row(state, str(count))
        return table

    def save(self, directory: Path) -> None:
        np.save(directory / "visits.npy", np.array(list(self.visits.values())))


class Walk(Algorithm):
    """A right algorithm: a random walk, which it can go on with."""

    steps = 20
    result: type = Mean

    def run(self, context: RunContext) -> Any:
        world = self.world_of(context.world)
        state = world.initial_state()[None]
        visits: dict[str, int] = {}
        generator = self.generator(context)
        for step in range(self.steps):
            place = world.describe(state[0])
            visits[place] = visits.get(place, 0) + 1
            actions = torch.ones((1, len(world.spec.agents)), dtype=torch.int64)
            actions[0, 1] = int(place == "closed")
            state = world.step(state, actions, generator)
            if place == "inside":
                state = world.initial_state()[None]
            self.report(context, step, visits)
        (context.directory / "walk.txt").write_text("done", encoding="utf-8")
        return self.result(visits)

    def world_of(self, world: WorldModel | None) -> WorldModel:
        if world is None:
            raise ConfigError("a walk needs a world; add the key 'world_model'")
        return world

    def generator(self, context: RunContext) -> torch.Generator:
        return torch.Generator().manual_seed(context.seed)

    def report(self, context: RunContext, step: int, visits: dict[str, int]) -> None:
        context.tracker.progress("walk", step + 1, self.steps)
        context.tracker.log(step, {f"visits/{place}": n for place, n in visits.items()})

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        return {"steps": self.steps, "agents": len(self.world_of(world).spec.agents)}


def with_result(**methods: Callable[..., Any]) -> type:
    """A walk whose result has other methods."""
    return type("WithResult", (Walk,), {"result": type("Broken", (Mean,), methods)})


class CannotCheck:
    run = Walk.run


class ReturnsItsNumbers(Walk):
    result = dict


def nan_summary(self: Mean) -> dict[str, Any]:
    return {"visits": float("nan")}


def tensor_summary(self: Mean) -> dict[str, Any]:
    return {"visits": torch.tensor(1.0)}


def numbered_summary(self: Mean) -> dict[str, Any]:
    return {"visits": {1: 2}}


def ageing_summary(self: Mean) -> dict[str, Any]:
    self.visits["asked"] = self.visits.get("asked", 0) + 1
    return Mean.summary(self)


class IgnoresTheSeed(Walk):
    def __init__(self) -> None:
        self.seeds = itertools.count()

    def generator(self, context: RunContext) -> torch.Generator:
        return torch.Generator().manual_seed(next(self.seeds))


def reports_an_object(self: Mean) -> RenderableType:
    return repr(object())


def reports_nothing(self: Mean) -> RenderableType:
    return "\n"


def saves_nothing(self: Mean, directory: Path) -> None:
    pass


def saves_here(self: Mean, directory: Path) -> None:
    Path("visits.txt").write_text("3", encoding="utf-8")


def saves_a_pickle(self: Mean, directory: Path) -> None:
    (directory / "visits.bin").write_bytes(pickle.dumps(self.visits))


def saves_torch(self: Mean, directory: Path) -> None:
    torch.save(self.visits, directory / "visits.pt")


def saves_objects(self: Mean, directory: Path) -> None:
    np.save(directory / "visits.npy", np.array([self.visits], dtype=object), allow_pickle=True)


def saves_once(self: Mean, directory: Path) -> None:
    with (directory / "visits.txt").open("x", encoding="utf-8") as file:
        file.write("3")


class RefusesToGoOn(Walk):
    def run(self, context: RunContext) -> Any:
        if context.resume:
            (context.directory / "walk.txt").read_text(encoding="utf-8")
        return super().run(context)


class CountsTwiceWhenResumed(Walk):
    def run(self, context: RunContext) -> Any:
        result = super().run(context)
        if context.resume:
            result.visits["closed"] *= 2
        return result


class GoesBack(Walk):
    def report(self, context: RunContext, step: int, visits: dict[str, int]) -> None:
        context.tracker.progress("walk", self.steps - step, self.steps)


class NeverArrives(Walk):
    def report(self, context: RunContext, step: int, visits: dict[str, int]) -> None:
        context.tracker.progress("walk", step, self.steps)


class LogsTensors(Walk):
    def report(self, context: RunContext, step: int, visits: dict[str, int]) -> None:
        context.tracker.log(step, {"step": torch.tensor(step)})  # type: ignore[dict-item]


class Prints(Walk):
    def report(self, context: RunContext, step: int, visits: dict[str, int]) -> None:
        print(step)


class ImprovesTheWorld(Walk):
    def world_of(self, world: WorldModel | None) -> WorldModel:
        found = super().world_of(world)
        assert isinstance(found, TinyWorld)
        found._prob = found._prob.flip(1)
        return found


class ChecksNothing(Walk):
    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        return {}


class ChecksByWriting(Walk):
    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        Path("check.txt").write_text("fine", encoding="utf-8")
        return super().check(world)


class CrashesWithoutAWorld(Walk):
    def world_of(self, world: WorldModel | None) -> WorldModel:
        return world  # type: ignore[return-value]


FLAWS: list[tuple[type, list[str]]] = [
    (CannotCheck, ["test_it_fits_the_protocol"]),
    (ReturnsItsNumbers, ["test_a_run_gives_a_result"]),
    (with_result(summary=nan_summary), ["test_the_summary_is_strict_json"]),
    (with_result(summary=tensor_summary), ["test_the_summary_is_strict_json"]),
    (with_result(summary=numbered_summary), ["test_the_summary_is_strict_json"]),
    (with_result(summary=ageing_summary), ["test_a_result_says_the_same_each_time"]),
    (IgnoresTheSeed, ["test_the_seed_decides_the_result"]),
    (with_result(report=reports_an_object), ["test_the_report_can_be_shown"]),
    (with_result(report=reports_nothing), ["test_the_report_can_be_shown"]),
    (with_result(save=saves_nothing), ["test_results_are_saved_in_the_directory_only"]),
    (with_result(save=saves_here), ["test_results_are_saved_in_the_directory_only"]),
    (with_result(save=saves_a_pickle), ["test_nothing_is_pickled"]),
    (with_result(save=saves_torch), ["test_nothing_is_pickled"]),
    (with_result(save=saves_objects), ["test_nothing_is_pickled"]),
    (with_result(save=saves_once), ["test_results_can_be_saved_again"]),
    (RefusesToGoOn, ["test_a_run_can_be_resumed_wherever_it_stopped"]),
    (CountsTwiceWhenResumed, ["test_a_run_can_be_resumed_wherever_it_stopped"]),
    (GoesBack, ["test_what_it_reports_makes_sense"]),
    (NeverArrives, ["test_what_it_reports_makes_sense"]),
    (LogsTensors, ["test_what_it_reports_makes_sense"]),
    (Prints, ["test_standard_output_is_left_to_the_result"]),
    (ImprovesTheWorld, ["test_the_world_stays_as_it_is"]),
    (ChecksNothing, ["test_check_says_what_a_run_would_need"]),
    (ChecksByWriting, ["test_check_says_what_a_run_would_need"]),
    (CrashesWithoutAWorld, ["test_a_run_without_a_world_works_or_says_why_not"]),
]


def subclass(make: type) -> type:
    class TestIt(AlgorithmTests):
        @pytest.fixture
        def algorithm(self) -> Algorithm:
            return make()  # type: ignore[no-any-return]

    return TestIt


def test_a_right_algorithm_passes(kit_failures: Runner) -> None:
    assert kit_failures(subclass(Walk)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_algorithm_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    assert kit_failures(subclass(make), only=caught_by) == set(caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in vars(AlgorithmTests) if name.startswith("test_")}
