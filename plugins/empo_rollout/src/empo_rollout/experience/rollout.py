"""One rollout, as everything that learns from it sees it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


@dataclass(slots=True)
class Rollout:
    """Segments of consecutive steps, each of one agent, time first.

    A row along ``time`` is one step: what was seen, what was done, and what *that* led to
    (transition-aligned). Segments are cut by time, not by episodes: where one ends, the next
    row belongs to the next episode of the same agent.

    Attributes:
        observation: What the agent saw.
        action: What it did: options (int64) or numbers (float32).
        log_prob: Log-probability of that under the policy that acted.
        value: What that policy's critic said of the observation.
        reward: What followed.
        terminated: The episode ended with this step, worth nothing from there.
        truncated: It was cut off after this step.
        next_value: What the critic said of the observation that followed in the same episode:
            of the last one of the episode where it was truncated; 0 where ``terminated``, where
            ``unseen``, and where the step is not ``valid``.
        unseen: It was cut off (not ``terminated``), and nobody knows the observation that
            followed: whoever computes advantages decides what it goes on to be worth.
        starts: The observation is the first of an episode.
        valid: Whether the agent acted at all; where not, the step teaches nothing, its reward is
            0 and it ends no episode.
        known: Whether the outcome is known; False in the last step with ``tail: drop``.
        mask: Which options were available; None where all always are.
        memory: State of the policy's memory before the first step of each segment; it was
            already forgotten where the first step begins an episode.
        agent: The slot that each segment comes from.
        version: Training iterations of the policy that acted at each step.
    """

    observation: Shaped[Tensor, "time segment word"]
    action: Shaped[Tensor, "time segment number"]
    log_prob: Float[Tensor, "time segment"]
    value: Float[Tensor, "time segment"]
    reward: Float[Tensor, "time segment"]
    terminated: Bool[Tensor, "time segment"]
    truncated: Bool[Tensor, "time segment"]
    next_value: Float[Tensor, "time segment"]
    unseen: Bool[Tensor, "time segment"]
    starts: Bool[Tensor, "time segment"]
    valid: Bool[Tensor, "time segment"]
    known: Bool[Tensor, "time segment"]
    mask: Bool[Tensor, "time segment option"] | None
    memory: Float[Tensor, "segment unit"]
    agent: Int[Tensor, " segment"]
    version: Int[Tensor, "time segment"]

    @property
    def learnable(self) -> Bool[Tensor, "time segment"]:
        """The steps that losses are about: somebody acted, and what followed is known."""
        return self.valid & self.known

    def segments(self, chosen: Int[Tensor, " chosen"]) -> Rollout:
        """Copies of some segments, in the order asked for."""

        def copied(name: str) -> Any:  # None where there are no masks.
            tensor = getattr(self, name)
            axis = 0 if name in {"memory", "agent"} else 1
            return None if tensor is None else tensor.index_select(axis, chosen)

        return Rollout(**{field.name: copied(field.name) for field in fields(self)})
