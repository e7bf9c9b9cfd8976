"""Learning by ``rollout`` in environments whose optimal policies or returns are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from empo_core.config.files import load_config
from empo_core.experiment import run
from empo_rollout.algorithm import RolloutAlgorithm
from empo_rollout.params import RolloutParams
from empo_rollout.result import RolloutResult
from empo_testing.algorithm import fresh

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo_cartpole.yaml"
GAMMA = 0.8
STATES, SLIP, LIMIT = 5, 0.1, 3
FAR, NEAR = 1.0, 0.45
"""Rewards at the right and the left end of the chain."""
BLANKS = 4
"""Steps between a cue and the question what it was."""

Seen = np.ndarray


class Chain(gymnasium.Env[Seen, np.int64]):
    """A row of states that is left at either end, and in which a step may slip the other way.

    Episodes begin anywhere, and may be cut off in the middle: that is not an end.
    """

    observation_space = Box(0, 1, (STATES,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(STATES))
        return np.eye(STATES, dtype=np.float32)[self.state], {}

    def step(self, action: np.int64) -> Any:
        right = bool(action) != (self.np_random.random() < SLIP)
        self.state += 1 if right else -1
        over = not 0 <= self.state < STATES
        reward = (FAR if right else NEAR) if over else 0.0
        row = np.zeros(STATES, np.float32) if over else np.eye(STATES, dtype=np.float32)[self.state]
        return row, reward, over, False, {}


class Cue(gymnasium.Env[Seen, np.int64]):
    """Shows a sign, then nothing, then asks for the sign; the answer pays 1 or -1."""

    observation_space = Box(-1, 1, (2,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.sign, self.time = int(self.np_random.integers(2)), 0
        return np.array([2 * self.sign - 1, 0], np.float32), {}

    def step(self, action: np.int64) -> Any:
        self.time += 1
        over = self.time > BLANKS
        seen = np.array([0, self.time == BLANKS], np.float32)
        return seen, (1.0 if action == self.sign else -1.0) if over else 0.0, over, False, {}


class Bandit(gymnasium.Env[Seen, Any]):
    """One step each; what is right depends on what is seen."""

    observation_space = Box(-1, 1, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seen = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.seen, self.info()

    def info(self) -> dict[str, Any]:
        return {}

    def pay(self, action: Any) -> float:
        raise NotImplementedError

    def step(self, action: Any) -> Any:
        return self.seen, self.pay(action), True, False, self.info()


class Numbers(Bandit):
    """Two numbers, each of which should be a certain one; pays minus the squared distance."""

    action_space = Box(-1, 1, (2,), np.float32)

    def pay(self, action: Any) -> float:
        right = np.array([0.5 * self.seen[0] + 0.2, -0.4 * self.seen[1]])
        return -float(np.square(action - right).sum())


class Choices(Bandit):
    """Two choices: where the greatest number is, and whether the first is above 0; pays each."""

    action_space = MultiDiscrete([3, 2])

    def pay(self, action: Any) -> float:
        return float(action[0] == self.seen.argmax()) + float(action[1] == (self.seen[0] > 0))


class Masked(Bandit):
    """Pays where the last option is taken of those there are; others must not be taken."""

    action_space = Discrete(4)

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.concatenate(([1], self.seen > 0)).astype(np.int8)}

    def pay(self, action: Any) -> float:
        there = self.info()["action_mask"]
        assert there[action]
        return float(not there[action + 1 :].any())


class Game:
    """Two agents move at once, once: (0, 1) pays both 1, (1, 0) half of it, anything else nothing.

    Unless told, they do not know which of the two they are.
    """

    possible_agents = ("one", "other")

    def __init__(self, is_told: bool) -> None:
        self.told = is_told

    def observation_space(self, name: str) -> Box:
        return Box(0, 1, (2,), np.float32)

    def action_space(self, name: str) -> Discrete[Any]:
        return Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return self.seen(), {name: {} for name in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        pay = {(0, 1): 1.0, (1, 0): 0.5}.get((int(actions["one"]), int(actions["other"])), 0.0)
        names, self.agents = self.agents, []
        flags = dict.fromkeys(names, True), dict.fromkeys(names, False)
        return self.seen(), dict.fromkeys(names, pay), *flags, {name: {} for name in names}

    def seen(self) -> dict[str, Seen]:
        rows = np.eye(2, dtype=np.float32) * self.told
        return dict(zip(self.possible_agents, rows, strict=True))

    def close(self) -> None: ...


for each, limit in ((Chain, LIMIT), (Cue, None), (Numbers, None), (Choices, None), (Masked, None)):
    gymnasium.register(
        f"RolloutLearning/{each.__name__}-v0",
        entry_point=each,  # type: ignore[arg-type]
        max_episode_steps=limit,
        disable_env_checker=True,
    )

BASE: dict[str, Any] = {
    "total_steps": 8192,
    "num_envs": 64,
    "vectorisation": {"backend": "serial"},
    "experience": {"bptt_horizon": 8},
    "gamma": GAMMA,
    "policy": {"network": {"name": "mlp", "params": {"hidden": [32]}}},
    "update": {"update_epochs": 8, "minibatch_size": 512},
    "optimiser": {"lr": 0.02, "lr_schedule": "linear"},
    "losses": [{"loss": {"name": "ppo", "params": {"entropy": {"coef": 0.0}}}}],
    "compute": {"threads": 1},
    "reporting": {"checkpoint_interval": 0, "evaluation_episodes": 200, "log_interval": 1000},
}


@pytest.fixture
def learn(tmp_path: Path) -> Callable[..., RolloutResult]:
    """A function that learns in an environment, with some keys of some groups changed."""

    def learn(environment: str | dict[str, Any] | None, **groups: Any) -> RolloutResult:
        make_env = groups.pop("make_env", None)
        if isinstance(environment, str):
            environment = f"gymnasium/RolloutLearning/{environment}-v0"
        params: dict[str, Any] = {**BASE, "environment": environment}
        for name, group in groups.items():
            before = params.get(name)
            params[name] = {**before, **group} if isinstance(before, dict) else group
        context = fresh(None, tmp_path)
        context.seed, context.environment = 1, make_env
        return RolloutAlgorithm(RolloutParams.model_validate(params)).run(context)

    return learn


Learn = Callable[..., RolloutResult]


def earned(result: RolloutResult) -> float:
    """Mean return of the learned policy."""
    return result.evaluations[-1].returns.mean_return


@torch.no_grad()
def on_chain(result: RolloutResult) -> tuple[np.ndarray, np.ndarray]:
    """In each state of the chain: how likely the policy goes right, and the critic's value."""
    nobody = torch.zeros(STATES, 0)
    first = torch.zeros(STATES, dtype=torch.int64)
    step = result.policy.step(torch.eye(STATES), nobody, first.bool(), first)
    right = step.distribution.log_prob(torch.ones(STATES, 1, dtype=torch.int64)).exp()
    return right.double().numpy(), step.value.double().numpy()


def values(right: np.ndarray) -> np.ndarray:
    """State values of a policy on the chain, without truncation of episodes."""
    up = right * (1 - SLIP) + (1 - right) * SLIP
    moves = np.diag(up[:-1], 1) + np.diag(1 - up[1:], -1)
    pay = np.zeros(STATES)
    pay[-1] += up[-1] * FAR
    pay[0] += (1 - up[0]) * NEAR
    return np.linalg.solve(np.eye(STATES) - GAMMA * moves, pay)


def best() -> np.ndarray:
    """The best of all policies that always do the same in the same state."""
    policies = [np.array([(i >> s) & 1 for s in range(STATES)], float) for i in range(2**STATES)]
    return max(policies, key=lambda policy: float(values(policy).sum()))


def test_the_chain_has_one_best_policy_which_does_not_go_for_the_nearest_end() -> None:
    assert best().tolist() == [0, 1, 1, 1, 1]
    swapped = best()
    swapped[1] = 0
    assert values(best())[1] > 1.1 * values(swapped)[1]


WAYS: dict[str, dict[str, Any]] = {
    "shuffled": {},
}
OTHER_WAYS: dict[str, dict[str, Any]] = {
    "steps": {"update": {"sampling": "steps"}},
    "sequential and in parts": {"update": {"sampling": "sequential", "max_minibatch_size": 128}},
    "prioritised and without tails": {
        "update": {"sampling": "prioritized", "prio_alpha": 0.6},
        "experience": {"tail": "drop"},
    },
    "V-trace by minibatch": {"advantages": {"vtrace": "minibatch"}},
    "V-trace by epoch": {"advantages": {"vtrace": "epoch"}},
}


@pytest.mark.parametrize(
    "way", [*WAYS, *(pytest.param(way, marks=pytest.mark.slow) for way in OTHER_WAYS)]
)
def test_policy_and_values_are_those_of_the_chain(learn: Learn, way: str) -> None:
    result = learn("Chain", **(WAYS | OTHER_WAYS)[way])
    right, value = on_chain(result)
    assert np.abs(right - best()).max() < 0.1
    assert np.abs(value - values(right)).max() < 0.05
    assert np.abs(values(right) - values(best())).max() < 0.02


@pytest.mark.slow
def test_what_follows_a_cut_off_makes_a_difference(learn: Learn) -> None:
    result = learn("Chain", advantages={"truncation": "zero"})
    right, value = on_chain(result)
    # Where nothing is, the far end is out of reach: it takes four steps, and three are given.
    assert right[1] < 0.1
    assert best()[1] == 1
    assert (values(right) - value)[1:3].min() > 0.07


@pytest.mark.parametrize("order", ["rotation", pytest.param("arrival", marks=pytest.mark.slow)])
def test_workers_bring_what_is_learned_from(learn: Learn, order: str) -> None:
    ice = {"desc": ["HSFFG"], "is_slippery": True}
    result = learn(
        {"name": "gymnasium/FrozenLake-v1", "params": {"kwargs": ice}},
        vectorisation={"backend": "process", "workers": 2, "async_factor": 2, "order": order},
        total_steps=16_384,
    )
    states = 5
    nobody, first = torch.zeros(states, 0), torch.zeros(states, dtype=torch.int64)
    with torch.no_grad():
        step = result.policy.step(torch.eye(states), nobody, first.bool(), first)
        options = torch.arange(4)[:, None, None].expand(4, states, 1)
        chosen = torch.stack([step.distribution.log_prob(each) for each in options]).exp().numpy()
    moves, pay = on_ice(ice)
    optimum = np.zeros(states)
    for _ in range(1000):
        optimum = (pay + GAMMA * moves @ optimum).max(0)
    move = np.einsum("as,ast->st", chosen, moves)
    worth = np.linalg.solve(np.eye(states) - GAMMA * move, (chosen * pay).sum(0))
    start = 1
    assert worth[start] > 0.9 * optimum[start]  # Of acting at random it is a quarter.
    assert abs(float(step.value[start]) - worth[start]) < 0.06


def on_ice(kwargs: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Of a frozen lake: how likely each option leads from where to where, and what it pays."""
    table = gymnasium.make("FrozenLake-v1", **kwargs).unwrapped.P  # type: ignore[attr-defined]
    moves, pay = np.zeros((4, len(table), len(table))), np.zeros((4, len(table)))
    for state, options in table.items():
        for option, outcomes in options.items():
            for chance, successor, reward, over in outcomes:
                pay[option, state] += chance * reward
                moves[option, state, successor] += chance * (not over)
    return moves, pay


@pytest.mark.parametrize(
    "memory",
    ["lstm", *(pytest.param(memory, marks=pytest.mark.slow) for memory in ("gru", "none"))],
)
def test_only_who_remembers_can_answer(learn: Learn, memory: str) -> None:
    network: dict[str, Any] = {"name": "mlp", "params": {"hidden": [16]}}
    if memory != "none":
        params = {"cell": memory, "units": 16, "trunk": network}
        network = {"name": "lstm", "params": params}
    policy = {"network": network, "critic": "own" if memory == "none" else "shared"}
    result = learn("Cue", policy=policy, total_steps=12_288, gamma=0.95)
    if memory == "none":
        assert abs(earned(result)) < 0.3
    else:
        assert earned(result) > 0.99


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agents", "is_told", "reached"),
    [("shared", True, 1.0), ("separate", False, 1.0), ("shared", False, 0.0)],
)
def test_two_agents_find_what_pays_both_if_they_can_be_different(
    learn: Learn, agents: str, is_told: bool, reached: float
) -> None:
    make_env = partial(Game, is_told=is_told)
    result = learn(None, make_env=make_env, policy={"agents": agents}, total_steps=4096)
    assert earned(result) == reached


@pytest.mark.parametrize(
    ("name", "min_return"),
    [
        ("Numbers", -0.01),
        pytest.param("Choices", 1.9, marks=pytest.mark.slow),
        pytest.param("Masked", 0.97, marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_action_is_learned(learn: Learn, name: str, min_return: float) -> None:
    result = learn(name)
    assert earned(result) >= min_return


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_the_example_balances_the_pole(seed: int, tmp_path: Path) -> None:
    config = load_config(EXAMPLE, [f"seed={seed}", f"runs={tmp_path}", "trackers=[]"])
    result = run(config)
    assert isinstance(result, RolloutResult)
    last = result.evaluations[-1].returns
    assert last.episodes == 100
    assert last.mean_return >= 475
