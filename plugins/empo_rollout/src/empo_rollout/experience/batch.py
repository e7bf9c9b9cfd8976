"""One rollout, as everything that learns from it sees it."""

from __future__ import annotations

from dataclasses import dataclass

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
            of the last one of the episode where it was truncated; 0 where ``terminated``.
        starts: The observation is the first of an episode.
        valid: Whether the agent acted at all; where not, the step teaches nothing.
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

    def segments(self, chosen: Int[Tensor, " segment"]) -> Rollout:
        """Copies of some segments, in the order asked for."""
        times = {
            name: getattr(self, name).index_select(1, chosen)
            for name in (
                "observation", "action", "log_prob", "value", "reward", "terminated", "truncated",
                "next_value", "starts", "valid", "known", "version",
            )
        }  # fmt: skip
        mask = None if self.mask is None else self.mask.index_select(1, chosen)
        return Rollout(**times, mask=mask, memory=self.memory[chosen], agent=self.agent[chosen])
