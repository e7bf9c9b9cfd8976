"""Conformance kit of inspections: the world's transitions, and values at the states that follow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from empo_core.protocols import Algorithm, RunContext, WorldModel
from empo_core.runs.directory import RESULTS
from empo_testing.algorithm import fresh
from empo_theory.inspection import (
    NOT_KEPT,
    Inspectable,
    Inspection,
    InspectionScope,
    all_times,
)


class InspectableTests:
    """Subclass this in your plugin's tests and override ``algorithm`` and ``world``.

    Choose params with which a run takes a second or so, and can be inspected.
    """

    @pytest.fixture
    def algorithm(self) -> Algorithm:
        """The algorithm under test."""
        raise NotImplementedError("override the fixture 'algorithm'")

    @pytest.fixture
    def world(self) -> WorldModel:
        """The world it runs on."""
        raise NotImplementedError("override the fixture 'world'")

    @pytest.fixture
    def tolerance(self) -> float:
        """Relative error of a value that is asked for beside others than before.

        The last digits of a network's answers depend on what else it is asked.
        """
        return 0.0

    @pytest.fixture
    def context(self, algorithm: Algorithm, world: WorldModel, tmp_path: Path) -> RunContext:
        """Context of a finished run."""
        context = fresh(world, tmp_path / "run")
        algorithm.run(context).save(context.directory / RESULTS)
        return context

    @pytest.fixture
    def inspection(self, algorithm: Algorithm, context: RunContext) -> Inspection:
        """The run as a whole."""
        assert isinstance(algorithm, Inspectable)
        return algorithm.inspection(context, InspectionScope())

    def test_it_begins_with_the_start(self, inspection: Inspection, world: WorldModel) -> None:
        first = np.flatnonzero(inspection.number == 0)
        assert np.array_equal(inspection.rows[first], world.initial_states().states[:1].numpy())
        assert len(np.unique(inspection.rows, axis=0)) == inspection.num_states
        assert (np.diff(inspection.number) > 0).all()

    def test_transitions_are_those_of_the_world(
        self, inspection: Inspection, world: WorldModel
    ) -> None:
        rows = torch.from_numpy(inspection.rows)
        assert np.array_equal(inspection.achieved, world.achieved(rows).numpy())
        successors = world.transitions(rows)
        offsets, ends = inspection.offsets, successors.offsets.tolist()
        assert len(offsets) == len(ends)
        for pair in range(len(ends) - 1):
            mine = slice(offsets[pair], offsets[pair + 1])
            chances = dict[tuple[int, ...], float]()
            for item in range(ends[pair], ends[pair + 1]):
                row = tuple(successors.states[item].tolist())
                chances[row] = chances.get(row, 0.0) + float(successors.prob[item])
            prob = inspection.prob[inspection.code[mine]]
            if mine.start != mine.stop:
                assert prob.sum() == pytest.approx(1.0)
            for state, chance in zip(inspection.successor[mine], prob, strict=True):
                if state != NOT_KEPT:
                    assert chances[tuple(inspection.rows[state].tolist())] == pytest.approx(chance)

    def test_values_are_known_where_episodes_can_be(
        self, inspection: Inspection, world: WorldModel
    ) -> None:
        saved, spec = inspection, inspection.spec
        v_r, v_e = all_times(saved.v_r), all_times(saved.v_e)
        times = 1 if spec.horizon is None else spec.horizon
        shape = (times, saved.num_states)
        assert v_r.shape == shape
        assert v_e.shape == (*shape, len(spec.goals))
        assert (saved.v_m is None) != (saved.pi_h is None)
        if saved.q_r is not None:
            assert all_times(saved.q_r).shape == (*shape, spec.num_robot_actions)
        goes_on = np.diff(saved.offsets[:: spec.num_joint_actions]) > 0
        source = np.repeat(np.arange(len(saved.offsets) - 1), np.diff(saved.offsets))
        source //= spec.num_joint_actions
        is_known = ~np.isnan(v_r) & goes_on
        assert is_known[0, np.flatnonzero(saved.number == 0)].all()
        for time in range(1 if spec.horizon is None else times - 1):
            later = is_known[time if spec.horizon is None else time + 1]
            follows = saved.successor[is_known[time][source]]
            follows = follows[follows != NOT_KEPT]
            assert later[follows[goes_on[follows]]].all(), "a state that follows has no value"
        assert (v_r[is_known] < 0).all()
        assert ((v_e[is_known] >= -1e-9) & (v_e[is_known] <= 1 + 1e-6)).all()

    def test_a_limit_keeps_fewer_states_with_the_same_values(
        self, inspection: Inspection, algorithm: Algorithm, context: RunContext
    ) -> None:
        assert isinstance(algorithm, Inspectable)
        part = algorithm.inspection(context, InspectionScope(max_bytes=1))
        assert 0 < part.num_states <= inspection.num_states
        place = [int(np.flatnonzero((inspection.rows == row).all(1))[0]) for row in part.rows]
        v_r, whole = all_times(part.v_r), all_times(inspection.v_r)
        both = ~np.isnan(v_r)
        np.testing.assert_array_equal(v_r[both], whole[:, place][both])

    def test_it_may_begin_elsewhere(
        self, inspection: Inspection, algorithm: Algorithm, context: RunContext, tolerance: float
    ) -> None:
        assert isinstance(algorithm, Inspectable)
        spec, time = inspection.spec, int(inspection.spec.horizon is not None)
        goes_on = np.diff(inspection.offsets[:: spec.num_joint_actions]) > 0
        state = int(np.flatnonzero(goes_on & ~np.isnan(inspection.v_r[time]))[-1])
        scope = InspectionScope(start=inspection.rows[state], time=time)
        elsewhere = algorithm.inspection(context, scope)
        here = int(np.flatnonzero((elsewhere.rows == inspection.rows[state]).all(1))[0])
        value = inspection.v_r[time][state]
        assert abs(elsewhere.v_r[0][here] - value) <= tolerance * abs(value)
        assert elsewhere.first_time == time
