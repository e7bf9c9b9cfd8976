"""A part of a run's environments in a process of its own, with a copy of the policy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from safetensors.torch import load

from empo_core.random_streams import seed_globals
from empo_core.trees import StateDict
from empo_environments.normalisation import Moments
from empo_learning.episode_returns import ALL
from empo_learning.timers import Timers
from empo_rollout.buffer import Rollout
from empo_rollout.collector import build_collector
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policy import build_policy


class ObservedStep(NamedTuple):
    """The arguments of one call of ``EpisodeReturns.observe``."""

    reward: Float[np.ndarray, " agent"]
    done: Bool[np.ndarray, " agent"]
    reason: Int[np.ndarray, " agent"]
    success: Int[np.ndarray, " agent"] | None
    starts: Bool[np.ndarray, " agent"]
    acted: Bool[np.ndarray, " agent"]


class Collected(NamedTuple):
    """A rollout, what episodes did, and the state behind it.

    ``fresh`` is what a normaliser has seen; None without one.
    """

    rollout: Mapping[str, np.ndarray]
    observed: list[ObservedStep]
    state: StateDict
    fresh: Float64[np.ndarray, " number"] | None


@dataclass(frozen=True, slots=True)
class Share:
    """Everything that a worker is made from.

    Attributes:
        params: Of the run.
        environments: Makes its environments.
        plan: Sizes of its part.
        seed: Of the process-wide generators while environments are made, with the number of the
            part. A replacement makes the same ones, for it goes on where its predecessor was.
    """

    params: RolloutParams
    environments: EnvironmentFactory
    plan: VecPlan
    seed: int = 0


class SegmentWorker:
    """Collects segments on the worker of an executor."""

    def __init__(self, share: Share, number: int) -> None:
        """Make the environments; ``number`` is that of the part."""
        params, plan = share.params, share.plan
        self._number = number
        seed_globals(np.random.SeedSequence(share.seed, spawn_key=(number,)))
        self._vector = share.environments.part(plan, number)
        self._policy = build_policy(params.policy, self._vector.spec, generator=torch.Generator())
        self._record = _Record()
        self._collector = build_collector(
            params, plan, self._vector, self._policy, self._record, Timers(), torch.device("cpu")
        )

    def pid(self) -> int:
        """Number of this process."""
        return os.getpid()

    def restore(self, seed: int, state: StateDict | None) -> bool:
        """Go on from a state, or begin where there is none; True if it goes on exactly."""
        # Parts that begin at the same time must not draw the same numbers.
        seed_globals(np.random.SeedSequence(seed, spawn_key=(self._number,)))
        exact = state is not None and self._collector.load_state_dict(state["collector"])
        if exact and state is not None and self._collector.normaliser is not None:
            self._collector.normaliser.load_state_dict(state["normaliser"])
        if not exact:
            self._collector.start(seed)
        return exact

    def collect(
        self, weights: bytes, seed: int, version: int, moments: Sequence[Moments]
    ) -> Collected:
        """Collect a rollout.

        Args:
            weights: Of the policy, in the safetensors format.
            seed: Of everything random in the segment.
            version: How often the policy was trained.
            moments: Statistics of all actors to begin with, where observations are normalised.
        """
        # Nothing random depends on what this process did before.
        seed_globals(np.random.SeedSequence(seed))
        self._policy.load_state_dict(load(weights))
        normaliser = self._collector.normaliser
        if normaliser is not None:
            normaliser.begin(moments)
        rollout = self._collector.collect(version)
        observed, self._record.observed = self._record.observed, []
        state = {
            "collector": self._collector.state_dict(),
            "normaliser": None if normaliser is None else normaliser.state_dict(),
        }
        fresh = None if normaliser is None else normaliser.fresh()
        return Collected(_arrays(rollout), observed, state, fresh)

    def close(self) -> None:
        """Close the environments."""
        self._vector.close()


class _Record:
    """Notes what happened, for whoever counts the episodes of all workers."""

    def __init__(self) -> None:
        self.observed: list[ObservedStep] = []

    def observe(
        self,
        reward: Float[np.ndarray, " agent"],
        done: Bool[np.ndarray, " agent"],
        reason: Int[np.ndarray, " agent"],
        *,
        success: Int[np.ndarray, " agent"] | None = None,
        starts: Bool[np.ndarray, " agent"] | None = None,
        acted: Bool[np.ndarray, " agent"] | None = None,
        agents: slice = ALL,
    ) -> None:
        """Note a step; without blocks it is one of all agents, whose arrays are used again."""
        assert starts is not None
        assert acted is not None
        successes = None if success is None else success.copy()
        self.observed.append(
            ObservedStep(
                reward.copy(), done.copy(), reason.copy(), successes, starts.copy(), acted.copy()
            )
        )


def part_of(plan: VecPlan, actors: int) -> VecPlan:
    """Sizes of one of so many equal parts."""
    return replace(
        plan, workers=1, blocks=1, envs=plan.envs // actors, segments=plan.segments // actors
    )


def _arrays(rollout: Rollout) -> dict[str, np.ndarray]:
    named = {field.name: getattr(rollout, field.name) for field in fields(rollout)}
    return {name: tensor.numpy() for name, tensor in named.items() if tensor is not None}
