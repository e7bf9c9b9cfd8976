"""Copies of a world step together, pay what was asked for, and stand where they stood."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from empo_core.errors import CollectError, ConfigError, SolveError, UnsuitableWorldError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.protocols.environments import TimeStep
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_testing.environment import MakeVector, Player, VectorEnvTests
from empo_testing.worlds import CLOSED, INSIDE, OPEN, TinyWorld
from empo_world_environments.vector import WorldVectorEnv

WAIT, GO = range(2)


def by_openness(states: Tensor, steps_left: Tensor) -> Tensor:
    """A reward that tells apart where it was paid, and when."""
    return states[:, 0] + 10.0 * steps_left


class Corridor(WorldModel):
    """Five cells in a row; a human walks left or right, a robot may block it, and lava ends it.

    A row is ``(cell,)``. The last cell is lava: nobody can act there. With ``humans=2`` there is
    a second human with a cell of its own, who walks in the same way.
    """

    def __init__(self, humans: int = 1, horizon: int | None = 6, weights: bool = True) -> None:
        agents = [
            AgentSpec(name=f"human {i}", role="human", actions=("left", "right"))
            for i in range(humans)
        ]
        agents.append(AgentSpec(name="robot", role="robot", actions=("let", "block")))
        goals = [
            Goal(human=i, name=str(cell), weight=float(cell) if weights else 0.0)
            for i in range(humans)
            for cell in (1, 3)
        ]
        self._humans = humans
        self.spec = WorldSpec(
            name="corridor",
            agents=tuple(agents),
            goals=tuple(goals),
            state_words=humans,
            state_dtype=torch.int8,
            horizon=horizon,
        )

    def initial_state(self) -> Tensor:
        return torch.full((self._humans,), 2, dtype=torch.int8)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        raise AssertionError("copies must not ask for all successors")

    def available(self, states: Tensor) -> Tensor:
        alive = (states < 4).all(1)[:, None, None]
        return alive.expand(-1, len(self.spec.agents), 2).clone()

    def achieved(self, states: Tensor) -> Tensor:
        return torch.stack([states[:, goal.human] == int(goal.name) for goal in self.spec.goals], 1)

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        moves = (2 * actions[:, : self._humans] - 1) * (actions[:, -1:] == 0)
        return (states + moves.to(states.dtype)).clamp(min=0)

    def describe(self, state: Tensor) -> str:
        return f"cells {state.tolist()}"


class Stubborn:
    """Walks towards its goal in the corridor, whatever happens."""

    def __init__(self, world: WorldModel) -> None:
        self.asked: list[tuple[int, ...]] = []
        self._spec = world.spec

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        self.asked += map(tuple, torch.cat([states, steps_left[:, None]], 1).tolist())
        policy = torch.zeros(len(states), len(self._spec.goals), 2)
        for index, goal in enumerate(self._spec.goals):
            right = (states[:, goal.human] < int(goal.name)).long()
            policy[torch.arange(len(states)), index, right] = 1.0
        return policy


class TestRobots(VectorEnvTests):
    rounds = 15

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: WorldVectorEnv(TinyWorld(), copies=6, reward=by_openness, blocks=2)


class TestRobotsWithPrior(VectorEnvTests):
    rounds = 15

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        world = Corridor(humans=2)
        return lambda: WorldVectorEnv(
            world, copies=4, reward=by_openness, prior=Stubborn(world), blocks=2, desync=True
        )


class TestHumans(VectorEnvTests):
    rounds = 15

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        return lambda: WorldVectorEnv(
            TinyWorld(), copies=6, learners="humans", blocks=2, desync=True
        )


def played(vector: WorldVectorEnv, rounds: int = 40) -> list[TimeStep]:
    """Arrivals of a vector of one block under random actions."""
    vector.start(3)
    player = Player(vector)
    player.play(rounds)
    return player.log[0]


def first_row(arrival: TimeStep) -> list[float]:
    return arrival.observation[0].tolist()


def test_robots_see_the_state_and_the_share_of_steps_that_are_left() -> None:
    vector = WorldVectorEnv(TinyWorld(), copies=1, reward=by_openness)
    assert vector.spec.observations.words == 3
    assert vector.spec.observations.grid is None
    vector.start(0)
    assert first_row(vector.recv()) == [0, 0, 1]
    vector.send(0, np.array([[WAIT]]))
    assert first_row(vector.recv()) == pytest.approx([0, 0, 2 / 3])


def test_nothing_is_said_about_time_where_there_is_no_horizon() -> None:
    vector = WorldVectorEnv(TinyWorld(None), copies=20, reward=by_openness)
    log = played(vector)
    assert first_row(log[0]) == [0, 0]
    ended = [int(arrival.terminated.sum()) for arrival in log]
    assert sum(ended) > 20
    assert {int(i) for arrival in log for i in arrival.reason} == {-1, 0}
    assert {float(r) for arrival in log[1:] for r in arrival.reward} == {0.0, 10.0, 11.0}


def test_humans_also_see_who_they_are_and_what_they_want() -> None:
    log = played(WorldVectorEnv(TinyWorld(), copies=50, learners="humans"), 1)
    rows = log[0].observation.reshape(50, 2, -1)
    # Two words, the time, two humans, at most two goals of one human.
    assert rows.shape[2] == 2 + 1 + 2 + 2
    assert (rows[:, :, 3:5] == np.eye(2)).all()
    # The walker wants to be inside twice as often as it wants the door open.
    assert Counter(rows[:, 0, 5:].argmax(1).tolist()).keys() == {0, 1}
    assert (rows[:, 0, 5:].sum(1) == 1).all()
    assert (rows[:, 1, 5:] == [1, 0]).all()


def test_goals_are_drawn_by_weight() -> None:
    log = played(WorldVectorEnv(Corridor(), copies=4000, learners="humans"), 1)
    share = log[0].observation[:, -1].mean()
    assert share == pytest.approx(0.75, abs=0.03)


def test_masks_say_what_each_learner_can_do() -> None:
    log = played(WorldVectorEnv(TinyWorld(), copies=40, learners="humans"))
    assert {tuple(row) for arrival in log for row in arrival.mask[::2].tolist()} == {
        (True, True, False)
    }
    for arrival in log:
        is_open = arrival.observation[1::2, 0] == 1
        assert (arrival.mask[1::2, 2] == ~is_open).all()


def test_robots_are_paid_for_the_state_they_bring_about_and_not_for_the_end() -> None:
    log = played(WorldVectorEnv(TinyWorld(), copies=30, reward=by_openness))
    seen: Counter[float] = Counter()
    for arrival in log[1:]:
        going = ~arrival.terminated
        assert (arrival.reward[~going] == 0).all()
        left = np.round(arrival.observation[:, 2] * 3)
        expected = arrival.observation[:, 0] + 10 * left
        assert (arrival.reward[going] == expected[going]).all()
        seen.update(arrival.reward.tolist())
    assert seen.keys() == {0.0, 10.0, 11.0, 20.0, 21.0}


def test_both_the_end_of_the_world_and_the_horizon_terminate() -> None:
    vector = WorldVectorEnv(TinyWorld(), copies=60, reward=by_openness)
    reasons: Counter[str] = Counter()
    for arrival in played(vector):
        assert not arrival.truncated.any()
        assert (arrival.starts[arrival.terminated]).all()
        assert (arrival.observation[arrival.starts] == [0, 0, 1]).all()
        reasons.update(vector.spec.reasons[i] for i in arrival.reason if i >= 0)
    assert set(reasons) == {"terminal", "horizon"}
    assert vector.spec.reasons == ("terminal", "horizon", "cut")


def test_humans_pursue_their_goals_by_the_prior_while_robots_learn() -> None:
    world = Corridor()
    prior = Stubborn(world)
    vector = WorldVectorEnv(world, copies=20, reward=by_openness, prior=prior)
    vector.start(0)
    vector.recv()
    for _ in range(6):
        vector.send(0, np.zeros((20, 1), np.int64))
        cells = vector.recv().observation[:, 0]
        # Whoever wants to be at 1 or 3 goes there from 2; the prior then walks on and back.
        assert set(cells.tolist()) <= {0, 1, 2, 3}
    assert isinstance(prior, HumanPrior)


@pytest.mark.parametrize("prob", [0.0, 0.5, 1.0])
def test_humans_change_their_minds_as_often_as_asked(prob: float) -> None:
    world = Corridor(horizon=2)
    vector = WorldVectorEnv(
        world, copies=4000, reward=by_openness, prior=Stubborn(world), goal_resample_prob=prob
    )
    vector.start(0)
    first = vector.recv().observation[:, 0].copy()
    vector.send(0, np.zeros((4000, 1), np.int64))
    steps = vector.recv().observation[:, 0] - first
    vector.send(0, np.zeros((4000, 1), np.int64))
    vector.recv()
    # One of two goals weighs three times as much: a new goal is another one 3 times in 8.
    copies = vector.blocks[0]
    assert copies.goals is not None
    right = float((steps == 1).mean())
    assert right == pytest.approx(0.75, abs=0.03)
    goals = copies.goals[:, 0].clone()
    vector.send(0, np.zeros((4000, 1), np.int64))
    changed = float((copies.goals[:, 0] != goals).float().mean())
    assert changed == pytest.approx(prob * 3 / 8, abs=0.03)


def test_a_prior_is_asked_about_each_situation_once() -> None:
    world = Corridor(horizon=3)
    prior = Stubborn(world)
    played(WorldVectorEnv(world, copies=500, reward=by_openness, prior=prior), 50)
    assert len(prior.asked) == len(set(prior.asked)) > 0


def test_a_human_that_arrives_is_paid_once_and_its_episode_is_over() -> None:
    vector = WorldVectorEnv(Corridor(), copies=200, learners="humans")
    before = None
    arrivals = 0
    for arrival in played(vector, 60):
        goal = vector.spec.reasons.index("goal")
        assert ((arrival.reward == 1) == (arrival.reason == goal)).all()
        assert arrival.terminated[arrival.reward == 1].all()
        assert arrival.acts.all()
        if before is not None:
            # It stood next to its goal, and the next episode begins in the middle.
            wanted = np.where(before.observation[:, -1] == 1, 3, 1)
            came = arrival.reward == 1
            assert (np.abs(before.observation[came, 0] - wanted[came]) <= 1).all()
            assert (arrival.observation[came, 0] == 2).all()
        arrivals += int(arrival.reward.sum())
        before = arrival
    assert arrivals > 500


def test_of_several_humans_whoever_has_arrived_waits_for_the_others() -> None:
    vector = WorldVectorEnv(Corridor(humans=2), copies=100, learners="humans")
    waited = 0
    before: TimeStep | None = None
    for arrival in played(vector, 60):
        acts, starts = arrival.acts.reshape(-1, 2), arrival.starts.reshape(-1, 2)
        assert (starts[:, 0] == starts[:, 1]).all()
        assert acts[starts[:, 0]].all(), "everybody acts in a new episode"
        assert acts.any(1).all(), "an episode without anybody is over"
        waited += int((~acts).sum())
        if before is not None:
            idle = ~before.acts
            assert (arrival.reward[idle] == 0).all()
            assert not arrival.terminated[idle].any()
            assert (arrival.reason[idle] == -1).all()
            over = arrival.starts & before.acts
            assert arrival.terminated[over].all()
        before = arrival
    assert waited > 100


def test_cutting_off_spreads_the_ends_of_episodes_and_keeps_what_was_seen_last() -> None:
    vector = WorldVectorEnv(Corridor(), copies=300, reward=by_openness, desync=True)
    log = played(vector, 12)
    cut = vector.spec.reasons.index("cut")
    ended = np.zeros(300, bool)
    for before, arrival in pairwise(log):
        rows = np.flatnonzero(arrival.truncated)
        assert (arrival.final_row == rows).all()
        assert (arrival.reason[rows] == cut).all()
        assert not (arrival.truncated & arrival.terminated).any()
        assert not ended[rows].any(), "only first episodes are cut off"
        assert (np.abs(arrival.final_observation[:, 0] - before.observation[rows, 0]) <= 1).all()
        step = before.observation[rows, 1] - arrival.final_observation[:, 1]
        assert step == pytest.approx(np.full(len(rows), 1 / 6))
        ended |= arrival.truncated | arrival.terminated
    ends = [int((a.terminated | a.truncated).sum()) for a in log[1:]]
    assert min(ends) > 0


@pytest.mark.parametrize("steps", [2, 3])
def test_every_episode_is_cut_off_after_the_steps_that_it_may_have(steps: int) -> None:
    vector = WorldVectorEnv(Corridor(), copies=20, reward=by_openness, steps_per_episode=steps)
    age, ended = np.zeros(20, np.int64), 0
    for arrival in played(vector, 20):
        age = np.where(arrival.starts, age, age + 1)
        if arrival.terminated.any() or arrival.truncated.any():
            cut = arrival.truncated
            assert (age[cut] == steps - 1).all()
            assert (arrival.terminated | cut == arrival.starts).all()
            ended += int(arrival.terminated.sum())
        assert (age < steps).all()
        age[arrival.starts] = 0
        assert arrival.observation[:, 1] == pytest.approx(1 - age / 6)
    assert ended > 0


def test_a_reward_that_is_no_number_names_the_state() -> None:
    vector = WorldVectorEnv(
        Corridor(), copies=3, reward=lambda states, steps_left: states[:, 0] / 0.0 * 0
    )
    vector.start(0)
    vector.recv()
    with pytest.raises(CollectError, match=r"5 steps .*nan.*\n.*cells \["):
        vector.send(0, np.zeros((3, 1), np.int64))


def test_worlds_in_which_nobody_can_learn_are_refused() -> None:
    world = TinyWorld()
    agents = tuple(agent for agent in world.spec.agents if agent.role == "human")
    goals = world.spec.goals[:2]
    world.spec = _replaced(world.spec, agents=agents, goals=goals)
    with pytest.raises(ConfigError, match="robots"):
        WorldVectorEnv(world, copies=1, reward=by_openness)


def test_agents_without_a_role_are_refused() -> None:
    world = TinyWorld()
    agents = (*world.spec.agents[:2], AgentSpec(name="cat", role="other", actions=("nap",)))
    world.spec = _replaced(world.spec, agents=agents)
    with pytest.raises(UnsuitableWorldError, match=r"cat \(agent 2\)"):
        WorldVectorEnv(world, copies=1, reward=by_openness)


def test_humans_need_goals_that_count() -> None:
    with pytest.raises(SolveError, match="weight 0"):
        WorldVectorEnv(Corridor(weights=False), copies=1, learners="humans")


def test_copies_must_divide_into_blocks() -> None:
    with pytest.raises(ValueError, match=r"5 copies .*2"):
        WorldVectorEnv(TinyWorld(), copies=5, reward=by_openness, blocks=2)


def test_blocks_do_not_repeat_each_other() -> None:
    vector = WorldVectorEnv(TinyWorld(), copies=100, reward=by_openness, blocks=2)
    vector.start(0)
    player = Player(vector)
    player.play(5)
    ones, others = player.log
    assert any((a.observation != b.observation).any() for a, b in zip(ones, others, strict=True))


def test_chances_follow_the_world() -> None:
    # The robot opens a door; that works three times in four, always if somebody shouts.
    vector = WorldVectorEnv(TinyWorld(), copies=6000, reward=by_openness)
    vector.start(1)
    vector.recv()
    vector.send(0, np.ones((6000, 1), np.int64))
    share = vector.recv().observation[:, 0].mean()
    assert share == pytest.approx(2 / 3 * 0.75 + 1 / 3, abs=0.02)
    assert (CLOSED, OPEN, INSIDE) == (0, 1, 2)


def _replaced(spec: WorldSpec, **changes: object) -> WorldSpec:
    from dataclasses import replace

    return replace(spec, **changes)  # type: ignore[arg-type]
