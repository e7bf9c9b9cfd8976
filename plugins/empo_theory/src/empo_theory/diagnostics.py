"""Findings about who holds the power in a world, as data and as sentences.

Power is I_h = log2 X_h, in bits. Source of the definitions: arXiv 2608.08240; an algorithm that
works findings out says how it does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Literal, NamedTuple

from pydantic import Field, JsonValue

from empo_core.runs.atomic import StrictModel

Adversary = Literal["others", "robots", "all"]
"""Who works against a human: the other humans, the robots, or both."""
NOTICEABLE = 0.005
"""Bits, or chances, below which nothing is said about a difference."""


def finite(bits: float) -> float | None:
    """Bits as findings have them; None for those of nothing at all, the logarithm of 0."""
    return bits if math.isfinite(bits) else None


class Remainder(StrictModel):
    """A human's power in another case.

    Attributes:
        bits: What is left of it; None: nothing at all.
        lost: How much less that is than I_h; None: all of it. Negative where it is more.
    """

    bits: float | None
    lost: float | None


class Threat(Remainder):
    """A human's power where others work against it.

    Attributes:
        adversary: Who does.
        penalty: lambda, what a bit of deviation from their usual behaviour costs them, in units of
            capability; 0: nothing.
    """

    adversary: Adversary
    penalty: float


class Robots(NamedTuple):
    """How sentences speak of robots.

    Attributes:
        name: One, or several.
        takes: That they lessen something.
    """

    name: str
    takes: str


ROBOT = Robots("the robot", "as it acts, the robot takes")
ROBOTS = Robots("the robots", "as they act, the robots take")


class Canonical(StrictModel):
    """A human's power where every state is a goal.

    Attributes:
        bits: That power; None: there is none.
        maximum: log2 of the number of states.
    """

    bits: float | None
    maximum: float


class HumanPower(StrictModel):
    """The power of one human at the start.

    Attributes:
        human: Agent index.
        name: Its name.
        bits: I_h; None: it can attain nothing.
        maximum: I_h if all its goals were attained for certain.
        has_others: There are other humans.
        alone: The same where robots never act.
        threats: The same where others work against it.
        canonical: The same where every state is a goal.
    """

    human: int
    name: str
    bits: float | None
    maximum: float
    has_others: bool
    alone: Remainder | None = None
    threats: list[Threat] = Field(default_factory=list)
    canonical: Canonical | None = None

    def against(self, adversary: Adversary, penalty: float) -> Threat | None:
        """What is left against an adversary, if that was worked out."""
        for threat in self.threats:
            if threat.adversary == adversary and threat.penalty == penalty:
                return threat
        return None


class Alone(StrictModel):
    """Aggregate and long-term power where robots never act, in bits.

    Attributes:
        P: Aggregate power; None: a human is without any.
        L: Long-term power; None: likewise, now or later.
    """

    P: float | None
    L: float | None


class CoalitionPower(StrictModel):
    """What humans attain together who pursue the same goal.

    Attributes:
        members: Their names.
        capability: How surely they attain each goal.
        best: The same if they coordinated as well as they can.
        value: Sum of the capabilities to the power of zeta.
        dividend: What the coalition adds to all that its parts add; negative where members can do
            the same alone, or get in each other's way.
    """

    members: list[str]
    capability: list[float]
    best: list[float]
    value: float
    dividend: float


class Share(StrictModel):
    """What a human adds to coalitions, on average over all orders of joining: its Shapley value.

    Attributes:
        name: Its name.
        mass: The share; all shares sum to the value of all humans together.
        bits: log2 of it; None where it is not positive.
    """

    name: str
    mass: float
    bits: float | None


class Coalitions(StrictModel):
    """All coalitions of humans, and the share of each human.

    Attributes:
        goals: Names of the goals that all humans have.
        coalitions: The coalitions, the small ones first.
        shares: The humans' shares.
    """

    goals: list[str]
    coalitions: list[CoalitionPower]
    shares: list[Share]


class ReserveWeight(StrictModel):
    """What changes if a goal that is not listed counts.

    Attributes:
        weight: Its weight, where those of listed goals are 1 on average.
        action: The robots' best joint action at the start if they know of the goal.
        is_change: Robots who do not know of it do something else.
        lost: Bits that each human would need less for the same aggregate power, with the goal, if
            the robots knew of it; None where a human is without power.
    """

    weight: float
    action: str
    is_change: bool
    lost: float | None


class ReserveCheck(StrictModel):
    """Whether a goal that is not listed would change what the robots do.

    Attributes:
        states: How many states belong to it.
        action: The robots' best joint action at the start as it is.
        weights: What changes, by the weight of the goal.
    """

    states: int
    action: str
    weights: list[ReserveWeight]


class PowerFindings(StrictModel):
    """Who holds the power at the start; None, or empty, is what was not measured.

    Attributes:
        humans: The power of each human.
        robots: Number of robots.
        alone: Aggregate and long-term power without robots.
        coalitions: What humans attain together.
        reserve: Whether a goal that is not listed matters.
        left_out: Why something could not be measured.
    """

    humans: list[HumanPower]
    robots: int
    alone: Alone | None = None
    coalitions: Coalitions | None = None
    reserve: ReserveCheck | None = None
    left_out: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, data: Mapping[str, JsonValue]) -> PowerFindings:
        """The findings of which ``data`` gave this.

        Raises:
            ValidationError: if it did not.
        """
        return cls.model_validate({key: data[key] for key in data if key != "sentences"})

    def data(self) -> dict[str, JsonValue]:
        """The findings as JSON data, with the sentences."""
        return {**self.model_dump(mode="json"), "sentences": [*self.in_words()]}

    def in_words(self) -> list[str]:
        """One sentence for each finding."""
        robots = ROBOT if self.robots == 1 else ROBOTS
        lines = [line for human in self.humans for line in _of_human(human, robots)]
        if self.coalitions is not None:
            lines += _of_coalitions(self.coalitions)
        if self.reserve is not None:
            lines += _of_reserve(self.reserve, robots.name)
        return lines + self.left_out


def _of_human(human: HumanPower, robots: Robots) -> list[str]:
    name = human.name
    if human.bits is None:
        return [f"{name} can attain nothing: there is no power that anybody could take."]
    share = 2 ** (human.bits - human.maximum)
    lines = [
        f"{name} holds {_bits(human.bits)} of power, of {_bits(human.maximum)} if every goal were "
        f"certain (X_h is {100 * share:.0f} %)."
    ]
    if (alone := human.alone) is not None:
        lines.append(_of_alone(name, alone, robots))
    threat = human.against("others", 0.0)
    if threat is not None and human.has_others:
        lines.append(_of_threat(name, "the other humans", threat))
    if (threat := human.against("robots", 0.0)) is not None:
        lines.append(_of_threat(name, robots.name, threat))
    if (canonical := human.canonical) is not None:
        bits = "nothing" if canonical.bits is None else _bits(canonical.bits)
        maximum = _bits(canonical.maximum)
        lines.append(f"If every state were a goal, {name} would hold {bits} of at most {maximum}.")
    return lines


def _of_alone(name: str, alone: Remainder, robots: Robots) -> str:
    if alone.bits is None or alone.lost is None:
        return f"Without {robots.name}, {name} could attain nothing."
    if alone.lost > NOTICEABLE:
        return (
            f"Without {robots.name}, {name} would hold {_bits(alone.bits)}: {_bits(alone.lost)} "
            f"depend on {robots.name}."
        )
    if alone.lost < -NOTICEABLE:
        return (
            f"Without {robots.name}, {name} would hold {_bits(-alone.lost)} more: {robots.takes} "
            "power away."
        )
    return f"The power of {name} does not depend on {robots.name}."


def _of_threat(name: str, actor: str, threat: Threat) -> str:
    if threat.bits is None or threat.lost is None:
        return f"At worst, {actor} could take everything from {name}: nothing is guaranteed."
    if threat.lost <= NOTICEABLE:
        return f"{actor[0].upper()}{actor[1:]} can take hardly any power from {name}."
    lost, left = _bits(threat.lost), _bits(threat.bits)
    return f"At worst, {actor} could take {lost} from {name} and leave {left}."


def _of_coalitions(measured: Coalitions) -> list[str]:
    total = sum(share.mass for share in measured.shares)
    if not total:
        return ["Together, the humans can attain none of their common goals."]
    shares = [f"{share.name} {100 * share.mass / total:.0f} %" for share in measured.shares]
    lines = [f"Of what all humans can attain together, they add: {', '.join(shares)}."]
    if (loss := _largest_loss(measured)) is not None:
        smaller, larger, goal = loss
        newcomer = next(name for name in larger.members if name not in smaller.members)
        lines.append(
            f"Where {newcomer} joins {_listed(smaller.members)}, they attain "
            f"{measured.goals[goal]!r} less surely: {_per_cent(larger.capability[goal])} in place "
            f"of {_per_cent(smaller.capability[goal])}."
        )
    everybody = measured.coalitions[-1]
    gaps = [best - now for best, now in zip(everybody.best, everybody.capability, strict=True)]
    goal = max(range(len(gaps)), key=gaps.__getitem__)
    if gaps[goal] > NOTICEABLE:
        lines.append(
            f"If they coordinated perfectly, {_listed(everybody.members)} would attain "
            f"{measured.goals[goal]!r} more surely: {_per_cent(everybody.best[goal])} in place of "
            f"{_per_cent(everybody.capability[goal])}."
        )
    return lines


def _largest_loss(measured: Coalitions) -> tuple[CoalitionPower, CoalitionPower, int] | None:
    """A coalition, that with one member more, and the goal that this attains less surely by far."""
    largest, loss = NOTICEABLE, None
    for smaller, larger in permutations(measured.coalitions, 2):
        if len(larger.members) != len(smaller.members) + 1:
            continue
        if not set(smaller.members) < set(larger.members):
            continue
        for goal, (before, after) in enumerate(
            zip(smaller.capability, larger.capability, strict=True)
        ):
            if before - after > largest:
                largest, loss = before - after, (smaller, larger, goal)
    return loss


def _of_reserve(check: ReserveCheck, robots: str) -> list[str]:
    changes = [line for line in check.weights if line.is_change]
    states = "one state" if check.states == 1 else f"{check.states:,} states"
    if not changes:
        return [f"A further goal of {states} would not change the first action of {robots}."]
    first = changes[0]
    lost = "" if first.lost is None else f"; not knowing of it costs {_bits(first.lost)}"
    return [
        f"If a further goal of {states} counted {first.weight:.2g} of a listed one, {robots} would "
        f"begin with {first.action!r} in place of {check.action!r}{lost}."
    ]


def _bits(bits: float) -> str:
    return f"{round(bits, 2) + 0.0:.2f} bits"


def _per_cent(chance: float) -> str:
    return f"{100 * chance:.1f} %"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
