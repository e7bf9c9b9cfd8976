"""The kit of inspections passes solved and learned runs, and fails each flaw on purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import Algorithm, Result, RunContext, WorldModel
from empo_core.trees import JsonData
from empo_exact.algorithm import Exact
from empo_exact.plugin import ExactParams
from empo_phase2.algorithm import Phase2
from empo_phase2.params import Phase2Params
from empo_testing.inspectable import InspectableTests
from empo_theory.inspection import Inspection, InspectionScope


def trivial() -> WorldModel:
    reference = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
    found: WorldModel = build(WorldModelRef.model_validate(reference))
    return found


class TestExact(InspectableTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return trivial()

    @pytest.fixture
    def algorithm(self) -> Algorithm:
        return Exact(ExactParams(keep="all"))


class TestExactWithoutHorizon(TestExact):
    @pytest.fixture
    def world(self) -> WorldModel:
        reference = WorldModelRef.model_validate("table/menu_size")
        found: WorldModel = build(reference)
        return found


@pytest.mark.parametrize(
    "q_r",
    [
        "lookup",
        pytest.param(None, marks=pytest.mark.slow),
        {"name": "mlp", "params": {"hidden": 16}},
    ],
)
class TestLearned(InspectableTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return trivial()

    @pytest.fixture
    def tolerance(self, q_r: object) -> float:
        # Values are in single precision, and sums in it depend on what else is asked about.
        return 1e-5 if isinstance(q_r, dict) else 1e-6

    @pytest.fixture
    def algorithm(self, q_r: object) -> Algorithm:
        values = {"q_r": q_r, "v_h_e": "lookup", "v_r": None if q_r else "lookup"}
        params = {
            "values": values,
            "total_steps": 30,
            "warm_up": dict.fromkeys(("v_h_e", "x_h", "u_r", "q_r", "v_r", "ramp"), 5),
            "optimiser": {"lr": 0.5},
            "collector": {"name": "sync", "params": {"min_env_steps": 50}},
        }
        return Phase2(Phase2Params.model_validate(params))


Flaw = Callable[[Inspection, InspectionScope], Inspection]


class Flawed(Algorithm):
    """``exact``, with a flaw in its inspections."""

    def __init__(self, flaw: Flaw) -> None:
        self._exact, self._flaw = Exact(ExactParams(keep="all")), flaw

    def run(self, context: RunContext) -> Result:
        return self._exact.run(context)

    def check(self, world: WorldModel | None) -> Mapping[str, JsonData]:
        return self._exact.check(world)

    def inspection(self, context: RunContext, scope: InspectionScope) -> Inspection:
        return self._flaw(self._exact.inspection(context, scope), scope)


def numbered_from_1(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return replace(inspection, number=inspection.number + 1)


def with_other_chances(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return replace(inspection, prob=inspection.prob / 2)


def in_another_order(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return replace(inspection, successor=inspection.successor[::-1])


def achieving_nothing(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return replace(inspection, achieved=np.zeros_like(inspection.achieved))


def without_the_last_time(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return replace(inspection, v_r=inspection.v_r[:-1])


def without_a_successor(inspection: Inspection, scope: InspectionScope) -> Inspection:
    v_r = inspection.v_r.copy()
    v_r[1:, 1] = np.nan
    return replace(inspection, v_r=v_r)


def with_positive_values(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return replace(inspection, v_r=-inspection.v_r)


def with_other_values_where_cut(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return inspection if scope.max_bytes is None else replace(inspection, v_r=2 * inspection.v_r)


def with_other_values_elsewhere(inspection: Inspection, scope: InspectionScope) -> Inspection:
    return inspection if scope.start is None else replace(inspection, v_r=2 * inspection.v_r)


TRANSITIONS, VALUES = (
    "test_transitions_are_those_of_the_world",
    "test_values_are_known_where_episodes_can_be",
)
FLAWS: list[tuple[Flaw, str]] = [
    (numbered_from_1, "test_it_begins_with_the_start"),
    (with_other_chances, TRANSITIONS),
    (in_another_order, TRANSITIONS),
    (achieving_nothing, TRANSITIONS),
    (without_the_last_time, VALUES),
    (without_a_successor, VALUES),
    (with_positive_values, VALUES),
    (with_other_values_where_cut, "test_a_limit_keeps_fewer_states_with_the_same_values"),
    (with_other_values_elsewhere, "test_it_may_begin_elsewhere"),
]


@pytest.mark.parametrize(("flaw", "caught_by"), FLAWS)
def test_a_flaw_fails(kit_failures: Callable[..., set[str]], flaw: Flaw, caught_by: str) -> None:
    class Case(InspectableTests):
        @pytest.fixture
        def world(self) -> WorldModel:
            return trivial()

        @pytest.fixture
        def algorithm(self) -> Algorithm:
            return Flawed(flaw)

    assert kit_failures(Case, only=[caught_by]) == {caught_by}


def test_every_test_of_the_kit_can_fail() -> None:
    tests = {name for name in dir(InspectableTests) if name.startswith("test_")}
    assert {caught for _, caught in FLAWS} == tests
