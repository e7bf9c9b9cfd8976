"""How many environments, workers, blocks, segments and minibatches fit together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VecPlan:
    """Sizes that fit each other; ``plan_vectorisation`` makes them.

    Attributes:
        agents: Agents of one environment (M).
        workers: Worker processes (W); 1 without any.
        blocks: Blocks in flight (alpha).
        envs: Environments.
        horizon: Steps of a segment (T).
        segments: Segments of a rollout (S).
        minibatch_segments: Segments of a minibatch.
        accumulate: Backward passes per optimiser step.
        adjustments: What was changed to make sizes fit, for people, e.g. "workers 3 -> 2".
    """

    agents: int
    workers: int
    blocks: int
    envs: int
    horizon: int
    segments: int
    minibatch_segments: int
    accumulate: int = 1
    adjustments: tuple[str, ...] = ()
