"""The replay as plainly as it can be written: lists of episodes, for tests and benchmarks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """An observation, and the step that led there; None where an episode begins."""

    seen: Tensor
    step: Tensor | None


@dataclass(slots=True)
class PlainReplay:
    """Remembers the newest rows of each environment.

    Attributes:
        most: Rows of each environment.
        horizon: Steps of a sequence.
        episodes: Of each environment, the oldest first.
        ages: Steps of the newest episode of each environment.
    """

    most: int
    horizon: int
    episodes: dict[int, list[list[Row]]] = field(default_factory=dict)
    ages: dict[int, int] = field(default_factory=dict)

    def begin(self, env: int, observation: Tensor) -> None:
        """An episode begins; the one before is padded if it was cut off very soon."""
        episodes = self.episodes.setdefault(env, [])
        if episodes and episodes[-1][-1].step is not None:
            last, missing = episodes[-1][-1], self.horizon - self.ages[env]
            padding = torch.zeros_like(last.step)
            padding[-1] = -1
            episodes[-1] += [Row(last.seen, padding)] * missing
        episodes.append([Row(observation, None)])
        self.ages[env] = 0
        self._forget(env)

    def add(self, env: int, observation: Tensor, step: Tensor) -> None:
        """It goes on; where the step's last number is 1 it ends, and nothing happens any more."""
        rows = self.episodes[env][-1]
        rows.append(Row(observation, step))
        self.ages[env] += 1
        if step[-1] == 1:
            self.ages[env] = self.horizon
            after = torch.zeros_like(step)
            after[-1] = 1
            rows += [Row(observation, after)] * (self.horizon - 1)
        self._forget(env)

    def sequences(self) -> list[list[Row]]:
        """All sequences that there are."""
        return [
            episode[start : start + self.horizon + 1]
            for episodes in self.episodes.values()
            for episode in episodes
            for start in range(len(episode) - self.horizon)
        ]

    def sample(self, batch_size: int, rng: random.Random) -> list[list[Row]]:
        """Sequences, each with the same chance."""
        chosen = []
        places = [
            (episode, len(episode) - self.horizon)
            for episodes in self.episodes.values()
            for episode in episodes
            if len(episode) > self.horizon
        ]
        for episode, _ in rng.choices(places, [n for _, n in places], k=batch_size):
            start = rng.randrange(len(episode) - self.horizon)
            chosen.append(episode[start : start + self.horizon + 1])
        return chosen

    def _forget(self, env: int) -> None:
        episodes = self.episodes[env]
        while sum(map(len, episodes)) > self.most:
            del episodes[0][0]
            if not episodes[0]:
                del episodes[0]


__all__ = ["PlainReplay", "Row"]
