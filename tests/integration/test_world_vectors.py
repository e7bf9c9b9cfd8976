"""Vectors of copies of a world pay the power that ``exact`` finds."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_exact.solve import solve
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
