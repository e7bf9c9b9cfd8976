"""Actors of ``phase2`` in worlds and with priors of other plugins: they record the truth."""

import subprocess
import sys
from typing import Any

import cloudpickle
import pytest
import torch
from torch import Tensor

from empo_core.components import build
from empo_core.config import HumanPriorRef, WorldModelRef
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.types import Successors, WorldSpec
from empo_phase2.actor import ActorSettings, Phase2ActorFactory
from empo_phase2.experience import Block
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Params
from empo_testing.exploration import as_mappings, joint_actions

EVERYTHING = [
    {"name": "epsilon-greedy", "params": {"start": 0.7, "end": 0.7}},
    "count-bonus",
    {"name": "rnd", "params": {"feature_dim": 8, "hidden_dim": 16}},
]
CASES = {
    "trivial": ("multigrid/trivial", "exact"),
    "bushworld": ("bushworld/two_humans_one_robot", "exact"),
    "two bush robots": ("bushworld/two_robots", "uniform"),
    "two grid robots": ("multigrid/two_robots", "path-heuristic"),
    "two grid humans": ("multigrid/asymmetric_freeing_simple", "path-heuristic"),
    "table": ("table/coma_pill", "exact"),
}


def params(prior: str, **groups: Any) -> Phase2Params:
    values = {"q_r": "lookup", "v_h_e": "lookup", "x_h": "lookup"}
    usual = {
        "human_prior": prior,
        "values": values,
        "num_envs": 5,
        "exploration": {"robot": EVERYTHING, "human": EVERYTHING},
    }
    return Phase2Params.model_validate(usual | groups)


def in_order(spec: WorldSpec) -> Tensor:
    """All joint actions of all agents, the robots' within the humans'."""

    def number(agents: tuple[int, ...]) -> Tensor:
        total, stride = torch.zeros(len(joint), dtype=torch.int64), 1
        for agent in agents:
            total += joint[:, agent] * stride
            stride *= spec.num_actions[agent]
        return total

    joint = joint_actions(spec)
    return joint[(number(spec.humans) * spec.num_robot_actions + number(spec.robots)).argsort()]


@pytest.fixture(name="case", params=CASES)
def _case(request: pytest.FixtureRequest) -> tuple[WorldModel, HumanPrior, Phase2ActorFactory]:
    name, prior = CASES[request.param]
    reference = WorldModelRef.model_validate(name)
    world = build(reference)
    factory = Phase2ActorFactory(worlds=(reference,), params=params(prior), seed=1)
    return world, build(HumanPriorRef.model_validate(prior), world), factory


def test_what_is_recorded_is_what_world_and_prior_say(
    case: tuple[WorldModel, HumanPrior, Phase2ActorFactory],
) -> None:
    world, prior, factory = case
    spec, actions = world.spec, in_order(world.spec)
    assert ActorSettings.of(factory.params, world, 0).all_profiles
    actor, slots = factory(0), GoalIndex.of(spec)
    for step in range(12):
        block = Block.from_arrays(actor.act(step).arrays)
        states, moves = block.states, block.transitions
        rows = states.rows[moves.state]
        found = as_mappings(
            Successors(moves.offsets, states.rows[moves.successor], moves.prob.double())
        )
        every = rows.repeat_interleave(len(actions), 0)
        truth = as_mappings(world.transitions(every, actions.repeat(len(rows), 1)))
        for pair, expected in zip(found, truth, strict=True):
            assert pair.keys() == expected.keys()
            assert all(pair[row][0] == pytest.approx(expected[row][0], abs=1e-6) for row in pair)
        for row, steps, policy in zip(rows, moves.steps_left, moves.human_policy, strict=True):
            says = prior.policy(row[None], torch.tensor([int(steps)]))[0, slots.goal[0]].float()
            torch.testing.assert_close(policy, says)
        really = torch.zeros(len(rows), len(spec.agents), dtype=torch.int64)
        really[:, list(spec.humans)] = block.human_choice
        rest = moves.action
        for robot in spec.robots:
            really[:, robot] = rest % spec.num_actions[robot]
            rest = rest // spec.num_actions[robot]
        after = as_mappings(world.transitions(rows, really))
        following = states.rows[block.following].tolist()
        assert all(tuple(row) in may for row, may in zip(following, after, strict=True))
        assert torch.equal(states.achieved, world.achieved(states.rows)[:, slots.goal[0]])


def test_sampled_humans_follow_the_prior_whatever_they_explore() -> None:
    reference = WorldModelRef.model_validate("bushworld/two_humans_one_robot")
    world = build(reference)
    # Humans whose recorded actions would show it if exploration got into them.
    sharp = {"name": "exact", "params": {"theory": {"beta_h": 1e6}}}
    sampled = params("exact", human_prior=sharp, targets={"max_pairs": 1})
    actor = Phase2ActorFactory(worlds=(reference,), params=sampled)(0)
    prior, slots = build(HumanPriorRef.model_validate(sharp), world), GoalIndex.of(world.spec)
    differs = 0
    for step in range(30):
        block = Block.from_arrays(actor.act(step).arrays)
        moves = block.transitions
        assert moves.human_policy.shape[1] == 0
        for i, state in enumerate(moves.state):
            policy = prior.policy(
                block.states.rows[state][None], torch.tensor([int(moves.steps_left[i])])
            )[0]
            for k in range(len(world.spec.humans)):
                own = policy[slots.goal[0, slots.human == k]]
                acted_for = own[moves.acts_for[i, slots.human == k]]
                assert own[:, block.recorded[i, k]].max() > 1e-3
                assert bool((acted_for[:, block.recorded[i, k]] > 1e-3).all())
                differs += bool((acted_for[:, block.human_choice[i, k]] < 1e-3).any())
    assert differs > 10


@pytest.mark.slow
def test_an_actor_is_built_and_acts_alike_in_another_process() -> None:
    names = ("multigrid/trivial", "multigrid/trivial")
    worlds = tuple(WorldModelRef.model_validate(name) for name in names)
    factory = Phase2ActorFactory(worlds=worlds, params=params("path-heuristic"), seed=5)
    code = (
        "import sys, cloudpickle, torch; torch.set_num_threads(1)\n"
        "actor = cloudpickle.load(sys.stdin.buffer)(2)\n"
        "for step in range(4): found = actor.act(step)\n"
        "print(found.arrays['transitions.action'].tolist(), found.arrays['states.rows'].sum())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        input=cloudpickle.dumps(factory),
        capture_output=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr.decode()
    actor = factory(2)
    for step in range(4):
        here = actor.act(step)
    actions = here.arrays["transitions.action"].tolist()
    expected = f"{actions} {here.arrays['states.rows'].sum()}"
    assert found.stdout.decode().strip() == expected
