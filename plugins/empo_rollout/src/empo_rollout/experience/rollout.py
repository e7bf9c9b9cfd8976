"""Rollouts: the batch of experience that one iteration learns from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


@dataclass(slots=True)
class Rollout:
    """Segments of consecutive steps, each of one agent, time first.

    An entry along ``time`` is one transition: an observation, the action taken there, and the
    outcome of that action. Segments are cut by time, not by episodes: where one ends, the next
    row belongs to the next episode of the same agent.

    Attributes:
        observation: Observations.
        action: Actions: options (int64) or numbers (float32).
        log_prob: Log-probability of the action under the policy that acted.
        value: Value estimate of the observation, by that policy's critic.
        reward: Reward of the action.
        terminated: The episode ended with this step, worth nothing from there.
        truncated: It was cut off after this step.
        next_value: Value estimate of the next observation in the same episode: of the last one
            where the episode was truncated; 0 where ``terminated``, where ``unseen``, and where
            the step is not ``valid``.
        unseen: It was cut off (not ``terminated``), and the observation that followed is not
            known; ``advantages`` says what it counts as.
        starts: The observation is the first of an episode.
        valid: The agent acted; where not, the step counts in no loss, its reward is 0 and it ends
            no episode.
        is_known: The outcome is known; False in the last step with ``tail: drop``.
        mask: Which options were available; None where all always are.
        memory: State of the policy's memory before the first step of each segment; it was
            already forgotten where the first step begins an episode.
        agent: Index of the agent that each segment comes from, among those of all environments.
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
    is_known: Bool[Tensor, "time segment"]
    mask: Bool[Tensor, "time segment option"] | None
    memory: Float[Tensor, "segment unit"]
    agent: Int[Tensor, " segment"]
    version: Int[Tensor, "time segment"]

    @property
    def learnable(self) -> Bool[Tensor, "time segment"]:
        """The steps that losses are about: the agent acted, and the outcome is known."""
        return self.valid & self.is_known

    def segments(self, chosen: Int[Tensor, " chosen"]) -> Rollout:
        """Copies of some segments, in the order asked for."""
        parts: dict[str, Tensor] = {}
        for field in fields(self):
            tensor: Tensor | None = getattr(self, field.name)
            if tensor is not None:  # There may be no masks.
                axis = 0 if field.name in {"memory", "agent"} else 1
                parts[field.name] = tensor.index_select(axis, chosen)
        return replace(self, **parts)
