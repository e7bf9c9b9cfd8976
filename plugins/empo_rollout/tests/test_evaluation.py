"""Evaluations play whole episodes, as many everywhere, and come to an end."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from pettingzoo import ParallelEnv
from policy_shapes import policy_params

from empo_core.protocols.environments import VectorEnv
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.pettingzoo_env import PettingZooEnv
from empo_environments.serial import SerialVectorEnv
from empo_environments.single_env import episode_seed
from empo_learning.evaluation.returns import GroupReturns, ReturnSummary, returns_of
from empo_rollout.evaluation import EvaluationPlan, play
from empo_rollout.params import ComputeParams, PolicyParams
from empo_rollout.policy import Networks, build_policy

SEEN = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
SEED = 11


class Drawn(gymnasium.Env[np.ndarray, np.int64]):
    """Pays 1 + the action; the episode's seed says how long it takes, and whether it is cut off."""

    observation_space, action_space = SEEN, gymnasium.spaces.Discrete(3)

    def __init__(self, endless: bool = False) -> None:
        self.left, self.cut, self.endless = 0, False, endless

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.cut = int(self.np_random.integers(1, 9)), bool(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: np.int64) -> Any:
        self.left -= 1
        over = self.left <= 0 and not self.endless
        return self._seen(), 1.0 + float(action), over and not self.cut, over and self.cut, {}

    def _seen(self) -> np.ndarray:
        return self.np_random.normal(size=2).clip(-9, 9).astype(np.float32)


class Absent(ParallelEnv):
    """One agent acts for three steps, another one is never there."""

    metadata: ClassVar[dict[str, Any]] = {"name": "absent"}
    possible_agents: ClassVar[list[str]] = ["here", "away"]

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return SEEN

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.steps = ["here"], 0
        return {"here": np.zeros(2, np.float32)}, {"here": {}}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        over = self.steps == 3
        self.agents = [] if over else ["here"]
        seen, none = {"here": np.zeros(2, np.float32)}, {"here": False}
        return seen, {"here": 1.0}, {"here": over}, none, {"here": {}}


def drawn(vector: VectorEnv) -> Networks:
    generator = torch.Generator().manual_seed(2)
    return build_policy(
        PolicyParams.model_validate(policy_params(hidden=[8])), vector.spec, generator=generator
    )


def played(
    vector: VectorEnv, *, episodes_each: int, deterministic: bool = True, max_steps: int = 99
) -> GroupReturns:
    found = play(
        drawn(vector),
        vector,
        EvaluationPlan(
            episodes_each=episodes_each, most_steps=max_steps, deterministic=deterministic
        ),
        seed=SEED,
        compute=ComputeParams(),
        device=torch.device("cpu"),
    )
    return returns_of(found, {})


def environments(count: int, endless: bool = False) -> SerialVectorEnv:
    make = [lambda: GymnasiumEnv(Drawn(endless))] * count
    return SerialVectorEnv(make, blocks=1, order="rotation")


@torch.no_grad()
def test_each_environment_plays_as_many_episodes_whether_short_or_long() -> None:
    vector = environments(5)
    policy, none = drawn(vector), torch.zeros(1, 0)
    returns, lengths, cuts = [], [], []
    for number in range(5):
        for episode in range(3):
            env = Drawn()
            seen, _ = env.reset(seed=episode_seed(SEED, number, episode))
            paid, over, cut = [], False, False
            while not over and not cut:
                where = torch.zeros(1, dtype=torch.long)
                step = policy.step(torch.from_numpy(seen)[None], none, where.bool(), where)
                seen, reward, over, cut, _ = env.step(step.distribution.mode.numpy()[0, 0])
                paid.append(reward)
            returns.append(sum(paid))
            lengths.append(len(paid))
            cuts.append(cut)
    found = played(vector, episodes_each=3)
    assert len(set(lengths)) > 3
    assert 0 < np.mean(cuts) < 1
    assert found.episodes == 15
    assert found.mean_return == pytest.approx(np.mean(returns))
    assert found.standard_error == pytest.approx(np.std(returns, ddof=1) / 15**0.5)
    assert (found.min_return, found.max_return) == (min(returns), max(returns))
    assert found.mean_length == pytest.approx(np.mean(lengths))
    assert found.ends == pytest.approx(
        {"terminated": 1 - np.mean(cuts), "truncated": np.mean(cuts)}
    )


def test_a_line_of_a_log_says_mean_and_standard_error() -> None:
    numbers = {"episodes": 3, "min_return": 0.0, "max_return": 9.0, "mean_length": 2.0}
    summary = ReturnSummary(mean_return=461.764321, standard_error=5.4727, **numbers)
    assert str(summary) == "mean return 461.764 ± 5.5"


def test_an_evaluation_is_decided_by_its_seed_and_has_no_effect_on_other_randomness() -> None:
    before = torch.get_rng_state()
    one = played(environments(4), episodes_each=2, deterministic=False)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(77)
    assert played(environments(4), episodes_each=2, deterministic=False) == one
    assert played(environments(4), episodes_each=2).mean_return != one.mean_return


def test_episodes_that_never_end_count_as_they_stand(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = played(environments(3, endless=True), episodes_each=2, max_steps=20)
    assert (found.episodes, found.mean_length) == (3, 40)
    assert found.ends == {"unfinished": 1.0}
    assert "6 of 6 episodes had not ended" in caplog.text
    assert "evaluation_steps" in caplog.text


def test_agents_that_never_act_do_not_count(caplog: pytest.LogCaptureFixture) -> None:
    make = [lambda: PettingZooEnv(Absent())] * 2
    with caplog.at_level(logging.WARNING):
        found = played(SerialVectorEnv(make, blocks=1, order="rotation"), episodes_each=2)
    assert (found.episodes, found.mean_return, found.mean_length) == (4, 3.0, 3.0)
    assert "4 of 8 episodes had not ended" in caplog.text
