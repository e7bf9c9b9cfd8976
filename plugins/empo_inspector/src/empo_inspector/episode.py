"""Episodes by the same random numbers as the page's: PCG32, and inverses of cumulative sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from empo_core.inspection import Inspection
from empo_inspector.decision import OneStep

_MASK, _STRIDE, _SEQUENCE = (1 << 64) - 1, 6364136223846793005, 54 << 1 | 1


class Pcg32:
    """The random numbers of PCG-XSH-RR 64/32, sequence 54."""

    def __init__(self, seed: int) -> None:
        self._state = 0
        self.next()
        self._state = self._state + seed & _MASK
        self.next()

    def next(self) -> int:
        """A whole number below 2**32."""
        old = self._state
        self._state = old * _STRIDE + _SEQUENCE & _MASK
        shifted, turn = (old >> 18 ^ old) >> 27 & 0xFFFFFFFF, old >> 59
        return (shifted >> turn | shifted << (-turn & 31)) & 0xFFFFFFFF

    def draw(self, weights: Iterable[float]) -> int:
        """A position, with the probability that stands there."""
        uniform, total, last = (self.next() + 0.5) / 2**32, 0.0, 0
        for position, weight in enumerate(weights):
            if weight > 0:
                total, last = total + weight, position
                if uniform < total:
                    return position
        return last


class Move(NamedTuple):
    """A step of an episode: the joint action, and the position of the state that follows."""

    joint: int
    successor: int


class Episode:
    """An episode in which some agents act as told, and the others draw their actions.

    Drawn first are a goal for each human, by weight; then, in each step, the actions of humans who
    are not told theirs, in their order; the robots' joint action, unless all are told; and the
    state that follows.
    """

    def __init__(self, inspection: Inspection, seed: int) -> None:
        self._kept, self._step, self._spec = inspection, OneStep(inspection), inspection.spec
        self._random = Pcg32(seed)
        self.goals: list[int] = []
        for human in self._spec.humans:
            own = self._spec.goals_of(human)
            weights = [self._spec.goals[goal].weight for goal in own]
            total = sum(weights)
            self.goals.append(own[self._random.draw(weight / total for weight in weights)])

    def move(self, state: int, time: int, told: Mapping[int, int]) -> Move | None:
        """The next step; None, and nothing drawn, where what was told cannot be done there.

        Args:
            state: Position of the present state.
            time: The present time.
            told: Actions by agent index.
        """
        spec, kept, before = self._spec, self._kept, self._random._state
        policies = self._step.policies(torch.tensor([state]), time)
        chosen = dict(told)
        for human, goal in zip(spec.humans, self.goals, strict=True):
            if human not in told:
                chosen[human] = self._random.draw(policies.pi_h[0, goal].tolist())
        if not told.keys() >= set(spec.robots):
            fits = [
                all(told.get(r, a) == a for r, a in own.items()) for own in self._robot_actions()
            ]
            weights = [p * f for p, f in zip(policies.pi_r[0].tolist(), fits, strict=True)]
            total = sum(weights)
            drawn = self._random.draw(weight / total for weight in weights)
            chosen |= self._robot_actions()[drawn]
        joint = sum(chosen[agent] * spec.strides[agent] for agent in chosen)
        pair = state * spec.num_joint_actions + joint
        begin, end = kept.offsets[pair], kept.offsets[pair + 1]
        if begin == end:
            self._random._state = before
            return None
        item = begin + self._random.draw(kept.prob[kept.code[begin:end]].tolist())
        return Move(joint, int(kept.successor[item]))

    def _robot_actions(self) -> list[dict[int, int]]:
        """Actions by agent index in each joint action of the robots, the first robot fastest."""
        found, spec = [], self._spec
        for joint in range(spec.num_robot_actions):
            own = {}
            for robot in spec.robots:
                joint, own[robot] = divmod(joint, spec.num_actions[robot])
            found.append(own)
        return found
