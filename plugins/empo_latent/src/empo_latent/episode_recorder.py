"""Recorded evaluation episodes, step by step, and batches of them for validation losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float32, Shaped
from torch import Tensor

from empo_latent.controller import ControllerOutput
from empo_latent.environments.task_vector import TaskStep, TaskVector
from empo_latent.replay import PADDING
from empo_latent.types import SequenceBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEpisode:
    """All steps of an episode.

    Attributes:
        task: Which task it is of.
        observation: What was seen, the last state included.
        action: What was done.
        reward: What it paid.
        terminated: 1 at the end, unless the episode was cut off.
        expert: Mean and log standard deviation of the planner's actions, where asked for.
    """

    task: int
    observation: Shaped[np.ndarray, "moment word"]
    action: Float32[np.ndarray, "time action"]
    reward: Float32[np.ndarray, " time"]
    terminated: Float32[np.ndarray, " time"]
    expert: Float32[np.ndarray, "time 2 action"] | None = None


class EpisodeRecorder:
    """Puts together the steps of each episode."""

    def __init__(self, vector: TaskVector, record: list[RecordedEpisode]) -> None:
        """Record the episodes of a vector; each is appended to ``record`` when it ends."""
        self._vector, self._record = vector, record
        self._rows: list[list[tuple[np.ndarray, ...]]] = [[] for _ in vector.task_of]

    def note(
        self,
        observation: Shaped[np.ndarray, "env word"],
        acted: ControllerOutput,
        step: TaskStep,
        rows: Bool[np.ndarray, " env"],
    ) -> None:
        """Add a step of some environments."""
        expert = np.zeros((len(rows), 0)) if acted.expert is None else acted.expert.cpu().numpy()
        ended = step.terminated | step.truncated
        for env in np.flatnonzero(rows).tolist():
            action = acted.action[env].numpy()
            parts = (observation[env], action, step.reward[env], step.terminated[env], expert[env])
            self._rows[env].append(tuple(np.array(part) for part in parts))
            if ended[env]:
                self._keep(env, step.observation[env])

    def _keep(self, env: int, last: Shaped[np.ndarray, " word"]) -> None:
        observations, action, reward, terminated, expert = zip(*self._rows[env], strict=True)
        self._rows[env] = []
        self._record.append(
            RecordedEpisode(
                task=int(self._vector.task_of[env]),
                observation=np.stack([*observations, np.array(last)]),
                action=np.stack(action),
                reward=np.array(reward, np.float32),
                terminated=np.array(terminated, np.float32),
                expert=np.stack(expert) if expert[0].size else None,
            )
        )


def sequence_batch(
    experience: Sequence[RecordedEpisode],
    *,
    horizon: int,
    count: int,
    tasks: int,
    generator: torch.Generator,
) -> SequenceBatch | None:
    """A batch of episodes' steps, uniform over all places where a sequence may begin.

    Args:
        experience: Episodes; a shorter one is a sequence with padding (``SequenceBatch.valid``).
        horizon: Steps of a sequence.
        count: Sequences.
        tasks: How many tasks there are.
        generator: Draws the places; on the CPU.

    Returns:
        The batch on the CPU; None where there are no episodes.
    """
    experience = [_padded(episode, horizon) for episode in experience]
    starts = [
        (episode, t) for episode in experience for t in range(len(episode.reward) - horizon + 1)
    ]
    if not starts:
        return None
    drawn = torch.randint(len(starts), (count,), generator=generator).tolist()
    chosen = [(episode, slice(t, t + horizon), t) for episode, t in (starts[i] for i in drawn)]
    experts = [episode.expert[span] for episode, span, _ in chosen if episode.expert is not None]
    return SequenceBatch(
        observation=_stacked(
            [episode.observation[t : t + horizon + 1] for episode, _, t in chosen]
        ),
        action=_stacked([episode.action[span] for episode, span, _ in chosen]),
        reward=_stacked([episode.reward[span, None] for episode, span, _ in chosen]),
        terminated=_stacked([episode.terminated[span, None] for episode, span, _ in chosen]).clamp(
            min=0
        ),
        valid=_stacked(
            [(episode.terminated[span, None] != PADDING) for episode, span, _ in chosen]
        ).to(torch.float32),
        task=torch.tensor([episode.task for episode, _, _ in chosen]) if tasks > 1 else None,
        expert=_stacked(experts) if len(experts) == len(chosen) else None,
    )


def _padded(episode: RecordedEpisode, horizon: int) -> RecordedEpisode:
    """The episode with at least so many steps, as ``Replay`` fills short ones up."""
    missing = horizon - len(episode.reward)
    if missing <= 0:
        return episode
    end = episode.terminated[-1] or PADDING

    def filled(rows: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([rows, np.full((missing, *rows.shape[1:]), value, rows.dtype)])

    last = np.repeat(episode.observation[-1:], missing, axis=0)
    return replace(
        episode,
        observation=np.concatenate([episode.observation, last]),
        action=filled(episode.action, 0),
        reward=filled(episode.reward, 0),
        terminated=filled(episode.terminated, end),
        expert=None if episode.expert is None else filled(episode.expert, np.nan),
    )


def _stacked(parts: Sequence[np.ndarray]) -> Tensor:
    """Sequences side by side: time before sequence."""
    return torch.from_numpy(np.stack(parts, axis=1))
