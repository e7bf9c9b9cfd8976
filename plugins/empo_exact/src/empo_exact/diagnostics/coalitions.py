"""What humans attain together who share goals, and the share of each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float64

from empo_core.errors import SolveError
from empo_core.types import WorldSpec
from empo_exact.diagnostics.sweep import Behaviour, Grouping, joint_chances, parts_of
from empo_theory.diagnostics import CoalitionPower, Coalitions, Share

MOST_HUMANS = 4
"""Humans whose coalitions are listed: there are 2^n - 1."""
Coalition = tuple[int, ...]


@dataclass(frozen=True)
class CommonGoal:
    """A goal that all humans have.

    Attributes:
        name: Its name.
        pursued: The goal, as a position in ``spec.goals``, that each human pursues for it.
        achieved: States that achieve it [state].
    """

    name: str
    pursued: dict[int, int]
    achieved: Bool[np.ndarray, " state"]


def common_goals(spec: WorldSpec, achieved: Bool[np.ndarray, "state goal"]) -> list[CommonGoal]:
    """Goals that are the same set of states to every human, each once; not the empty set.

    Args:
        spec: The world's specification.
        achieved: The goals that each state achieves.
    """
    common, sets = [], set[bytes]()
    for goal in spec.goals_of(spec.humans[0]):
        column = achieved[:, goal]
        if not column.any() or column.tobytes() in sets:
            continue
        sets.add(column.tobytes())
        pursued = {}
        for human in spec.humans:
            equal = [g for g in spec.goals_of(human) if (achieved[:, g] == column).all()]
            if equal:
                pursued[human] = equal[0]
        if len(pursued) == len(spec.humans):
            common.append(CommonGoal(spec.goals[goal].name, pursued, column))
    return common


def refuse_crowds(spec: WorldSpec) -> None:
    """Refuse worlds with more humans than coalitions are listed for.

    Raises:
        SolveError: if there are more.
    """
    if len(spec.humans) > MOST_HUMANS:
        raise SolveError(
            f"algorithm.params.diagnostics: {spec.name!r} has {len(spec.humans)} humans, and "
            f"coalitions are listed for up to {MOST_HUMANS}; leave coalitions out"
        )


class JointCapability:
    """Capability of humans who pursue a goal together; see ``sweep.Quantity``.

    Attributes:
        achieved: States that achieve each goal [state column].
    """

    def __init__(
        self,
        spec: WorldSpec,
        members: Coalition,
        goals: Sequence[CommonGoal],
        *,
        is_best: bool = False,
    ) -> None:
        """What is to be worked out.

        Args:
            spec: The world's specification.
            members: The humans who pursue the goals; the others act as ever.
            goals: Goals of all of them.
            is_best: They take the best joint action in place of what each would do: the envelope.
        """
        self._members, self._is_best = members, is_best
        self._others = [human for human in spec.humans if human not in members]
        self._part, self._part_of_others = parts_of(spec, members), parts_of(spec, self._others)
        self._pursued = {
            human: ([goal.pursued[human] for goal in goals], spec.num_actions[human])
            for human in members
        }
        self._size = math.prod(spec.num_actions[human] for human in members)
        self.achieved = np.stack([goal.achieved for goal in goals], axis=1)

    def grouping(self, here: Behaviour) -> Grouping:
        """See ``sweep.Quantity``: a group for each joint action of the members."""
        others = joint_chances(self._others, here.mean)
        return Grouping(
            group=self._part[:, None] + np.zeros(here.pi_r.shape[1], np.int64),
            size=self._size,
            profile_chance=others[:, self._part_of_others],
            robot_chance=here.pi_r,
            pursuit=np.ones((len(others), 1, self.achieved.shape[1])),
            own_action=np.zeros(len(self._part), np.int64),
        )

    def of(
        self, here: Behaviour, outcomes: Float64[np.ndarray, "state group column"]
    ) -> Float64[np.ndarray, "state column"]:
        """See ``sweep.Quantity``."""
        if self._is_best:  # Joint actions that are not available lead nowhere: they are worth 0.
            return outcomes.max(1)
        columns = range(outcomes.shape[2])
        pursuing = [
            joint_chances(
                self._members,
                {h: here.pi_h[:, goals[k], :n] for h, (goals, n) in self._pursued.items()},
            )
            for k in columns
        ]
        return np.stack([(pursuing[k] * outcomes[:, :, k]).sum(1) for k in columns], axis=1)


def coalitions_of(humans: Sequence[int]) -> list[Coalition]:
    """All coalitions, the small ones first."""
    return [members for size in range(1, len(humans) + 1) for members in combinations(humans, size)]


def shapley_values(value: dict[Coalition, float]) -> dict[int, float]:
    """The mean of what each human adds, over all orders in which humans may join.

    Args:
        value: The value of every coalition; that of nobody is 0.
    """
    humans = max(value, key=len)
    n, shares = len(humans), dict.fromkeys(humans, 0.0)
    for members, together in value.items():
        for human in members:
            others = tuple(other for other in members if other != human)
            orders = math.factorial(len(others)) * math.factorial(n - len(members))
            gain = together - value.get(others, 0.0)
            shares[human] += orders / math.factorial(n) * gain
    return shares


def dividends(value: dict[Coalition, float]) -> dict[Coalition, float]:
    """What each coalition adds to all that its own parts add; negative where it is wasted."""
    return {
        members: math.fsum(
            (-1) ** (len(members) - len(part)) * value[part] for part in coalitions_of(members)
        )
        for members in value
    }


def joint_capabilities(
    spec: WorldSpec, goals: Sequence[CommonGoal]
) -> list[tuple[Coalition, JointCapability, JointCapability]]:
    """What is to be worked out of each coalition: capability, and its envelope."""
    return [
        (
            members,
            JointCapability(spec, members, goals),
            JointCapability(spec, members, goals, is_best=True),
        )
        for members in coalitions_of(spec.humans)
    ]


def coalition_powers(
    spec: WorldSpec,
    goals: Sequence[CommonGoal],
    capability: dict[Coalition, Float64[np.ndarray, "start goal"]],
    best: dict[Coalition, Float64[np.ndarray, "start goal"]],
    start: Float64[np.ndarray, " start"],
    zeta: float,
) -> Coalitions:
    """Coalitions and shares.

    Args:
        spec: The world's specification.
        goals: Goals of all humans.
        capability: Capability of each coalition in the initial states.
        best: The same if its members coordinate as well as they can.
        start: Chances of the initial states.
        zeta: Exponent of capability in a coalition's value.
    """
    names = {human: spec.agents[human].name for human in spec.humans}
    value = {members: float(start @ (c**zeta).sum(1)) for members, c in capability.items()}
    added = dividends(value)
    return Coalitions(
        goals=[goal.name for goal in goals],
        coalitions=[
            CoalitionPower(
                members=[names[human] for human in members],
                capability=(start @ capability[members]).tolist(),
                best=(start @ best[members]).tolist(),
                value=value[members],
                dividend=added[members],
            )
            for members in value
        ],
        shares=[
            Share(name=names[human], mass=mass, bits=math.log2(mass) if mass > 0 else None)
            for human, mass in shapley_values(value).items()
        ],
    )
