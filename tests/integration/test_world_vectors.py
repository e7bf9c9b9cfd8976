"""Vectors of copies of a world pay the power that ``exact`` finds."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_exact.solve import solve
from empo_world_environments.gym import WorldGymnasiumVector, WorldParallelVector
from empo_world_environments.observation import WorldObservation

COPIES = 64


def test_robots_are_paid_the_power_that_exact_finds() -> None:
    world: WorldModel = build(WorldModelRef.model_validate("multigrid/trivial"))
    horizon = world.spec.horizon
    assert horizon
    solution = solve(world)
    features = WorldObservation(world.spec, "robots").features(
        torch.from_numpy(solution.graph.states)
    )
    state_of = {tuple(row): state for state, row in enumerate(features.tolist())}
    assert len(state_of) == solution.graph.num_states
    envs = gymnasium.make_vec(
        "empo_world_environments.gym:Empo/World-v0", num_envs=COPIES, world="multigrid/trivial"
    )
    _, infos = envs.reset(seed=1)
    random = np.random.default_rng(0)
    paid: set[tuple[int, int]] = set()
    for _ in range(2 * horizon):
        masks = infos["action_mask"]
        actions = (random.random(masks.shape) * masks).argmax(1)
        observations, rewards, terminated, _, infos = envs.step(actions)
        assert (rewards[terminated] == 0).all()
        for env in np.flatnonzero(~terminated):
            *row, share_left = observations[env].tolist()
            state, time = state_of[tuple(row)], horizon - round(share_left * horizon)
            assert rewards[env] == pytest.approx(solution.at(state, time).U_r, rel=1e-6)
            paid.add((state, time))
    assert {time for _, time in paid} == set(range(1, horizon))
    envs.close()


@pytest.mark.parametrize("name", ["multigrid/two_robots", "multigrid/trivial"])
@pytest.mark.parametrize("make", [WorldGymnasiumVector, WorldParallelVector])
def test_observations_that_are_kept_stay_as_they_are_and_others_are_not_copied(
    make: Any, name: str
) -> None:
    keeping, dropping = (make(name, COPIES, reward="goal") for _ in range(2))
    kept, memory = [], set[int]()
    observations, infos = keeping.reset(seed=1)
    dropping.reset(seed=1)
    random = np.random.default_rng(0)
    for _ in range(12):
        kept.append((observations, copy.deepcopy(observations)))
        actions = available(infos, random)
        observations, _, _, _, infos = keeping.step(actions)
        others = dropping.step(actions)[0]
        assert equal(observations, others)
        memory.add(next(arrays(others)).ctypes.data)
    assert all(equal(*pair) for pair in kept)
    assert len(memory) <= 2


def arrays(observations: Any) -> Iterator[np.ndarray]:
    """The array, or one per agent."""
    yield from observations.values() if isinstance(observations, dict) else [observations]


def equal(first: Any, second: Any) -> bool:
    return all(map(np.array_equal, arrays(first), arrays(second)))


def available(infos: Any, random: np.random.Generator) -> Any:
    """Actions that everybody has."""
    if "action_mask" not in infos:
        return {name: available(info, random) for name, info in infos.items()}
    mask = infos["action_mask"].reshape(COPIES, -1, 4)
    actions = (random.random(mask.shape) * mask).argmax(-1)
    return actions if actions.shape[1] > 1 else actions[:, 0]
