"""The rate of ``epsilon-greedy``, and explorers that are trained together."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from empo_core.errors import ConfigError
from empo_core.protocols import Explorer
from empo_core.types import WorldSpec
from empo_phase2.epsilon import EpsilonGreedy
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.params import EpsilonGreedyParams, Exploration
from empo_testing.explorer import ExplorerTests, ask, scene_of
from empo_testing.worlds import TinyWorld


class TestEpsilonGreedy(ExplorerTests):
    @pytest.fixture
    def make_explorer(self, spec: WorldSpec, agents: tuple[int, ...]) -> Callable[[], Explorer]:
        params = EpsilonGreedyParams(start=0.8, end=0.1, decay_fraction=0.5)
        return lambda: EpsilonGreedy(params, spec, agents)


DOORS = TinyWorld()
CLOSED = DOORS.initial_state()


@pytest.mark.parametrize(
    ("decay_from", "step", "epsilon"),
    [
        ("start", 0, 1.0),
        ("start", 25, 0.75),
        ("start", 100, 0.0),
        ("start", 1000, 0.0),
        ("q_r", 0, 1.0),
        ("q_r", 20, 1.0),
        ("q_r", 45, 0.75),
        ("q_r", 120, 0.0),
    ],
)
def test_epsilon_falls_from_the_start_or_from_a_stage(
    decay_from: str, step: int, epsilon: float
) -> None:
    params = EpsilonGreedyParams.model_validate(
        {"start": 1.0, "end": 0.0, "decay_fraction": 0.25, "decay_from": decay_from}
    )
    milestones = {"v_h_e": 0, "q_r": 20}
    scene = scene_of(CLOSED[None], training_step=step, milestones=milestones, total_steps=400)
    explorer = EpsilonGreedy(params, DOORS.spec, (1,))
    assert explorer.rate(step, milestones, 400) == pytest.approx(epsilon)
    explored = ask(explorer, torch.tensor([[0.0, 1.0]]), scene)
    assert explored[0].tolist() == pytest.approx([epsilon / 2, 1 - epsilon / 2])


def test_without_decay_epsilon_has_its_last_value_from_the_stage_on() -> None:
    params = EpsilonGreedyParams(start=0.6, end=0.2, decay_fraction=0, decay_from="q_r")
    explorer = EpsilonGreedy(params, DOORS.spec, (1,))
    assert [explorer.rate(step, {"q_r": 20}, 400) for step in (19, 20)] == [0.6, 0.2]


def test_a_stage_that_does_not_exist_is_named_with_those_that_do() -> None:
    explorer = EpsilonGreedy(EpsilonGreedyParams(decay_from="x_h"), DOORS.spec, (1,))
    with pytest.raises(ConfigError, match="stage 'x_h'"):
        explorer.rate(0, {"v_h_e": 0, "q_r": 20}, 400)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"decay_from": "lunch"}, "'start', 'v_h_e'"), ({"start": 1.5}, "less_than_equal")],
)
def test_senseless_params_are_refused(params: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EpsilonGreedyParams.model_validate(params)


def test_a_set_of_explorers_publishes_what_it_learned_to_another_one() -> None:
    rnd = {"name": "rnd", "params": {"feature_dim": 4, "hidden_dim": 8, "coefficient": 3.0}}
    exploration = Exploration.model_validate(
        {"robot": ["count-bonus", rnd], "human": ["epsilon-greedy", rnd]}
    )
    learner, actor = ExplorerSet(exploration, DOORS.spec), ExplorerSet(exploration, DOORS.spec)
    assert learner.learns
    names = {name.rpartition(".predictor")[0] for name in learner.weights() if "predictor" in name}
    assert names == {"explorers.robots.1", "explorers.human_0.1", "explorers.human_2.1"}
    noise = {
        name: t + 0.1 * torch.arange(t.numel()).view(t.shape)
        for name, t in learner.weights().items()
    }
    learner.load_weights(noise)
    actor.load_weights({"q_r.weight": torch.zeros(1)} | learner.weights())
    assert all(torch.equal(t, actor.weights()[name]) for name, t in noise.items())


def test_a_set_of_explorers_without_learned_explorers_publishes_nothing() -> None:
    explorers = ExplorerSet(Exploration.model_validate({"robot": ["epsilon-greedy"]}), DOORS.spec)
    assert not explorers.learns
    assert explorers.weights() == {}
