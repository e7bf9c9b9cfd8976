"""Capability that other agents cannot take away, however far they stray from what they would do.

C^lambda is the least capability that they can bring about if each bit by which their behaviour
deviates from the modelled one costs them ``penalty``: the recursion is a soft minimum over what
they do. It falls to a minimum over all that they may do where deviating is free.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float64, Shaped

from empo_core.types import WorldSpec
from empo_exact.diagnostics.sweep import Behaviour, Grouping, joint_chances, parts_of
from empo_theory.diagnostics import Adversary


class Guarded:
    """Capability of one human for its goals, against adversaries; see ``sweep.Quantity``.

    Attributes:
        achieved: States that achieve each of its goals [state column].
    """

    def __init__(
        self,
        spec: WorldSpec,
        achieved: Bool[np.ndarray, "state goal"],
        human: int,
        adversary: Adversary,
        penalty: float,
    ) -> None:
        """What is to be worked out.

        Args:
            spec: The world's specification.
            achieved: The goals that each state achieves.
            human: The human, by agent index.
            adversary: Who works against it.
            penalty: Cost of a bit of deviation in units of capability, lambda; infinite: nobody
                deviates.
        """
        self._goals = list(spec.goals_of(human))
        self._others = [other for other in spec.humans if other != human]
        self._adversary, self._penalty = adversary, penalty
        self._actions, self._own_action = spec.num_actions[human], parts_of(spec, [human])
        self._part = parts_of(spec, self._others)
        self.achieved = achieved[:, self._goals]

    def grouping(self, here: Behaviour) -> Grouping:
        """See ``sweep.Quantity``: a group for each joint action of the adversaries."""
        robots, profiles = here.pi_r.shape[1], len(self._part)
        others = joint_chances(self._others, here.mean)
        profile_chance, robot_chance = others[:, self._part], here.pi_r
        profile, robot = self._part[:, None], np.arange(robots)
        if self._adversary == "others":
            group, size = profile + 0 * robot, others.shape[1]
        elif self._adversary == "robots":
            group, size = robot + 0 * profile, robots
        else:
            group, size = profile + others.shape[1] * robot, others.shape[1] * robots
        if self._adversary != "robots":
            profile_chance = np.ones((len(others), profiles))
        if self._adversary != "others":
            robot_chance = np.ones_like(here.pi_r)
        pursuit = here.pi_h[:, self._goals, : self._actions].transpose(0, 2, 1)
        return Grouping(
            group,
            size,
            profile_chance,
            robot_chance,
            np.ascontiguousarray(pursuit),
            self._own_action,
        )

    def of(
        self, here: Behaviour, outcomes: Float64[np.ndarray, "state group column"]
    ) -> Float64[np.ndarray, "state column"]:
        """See ``sweep.Quantity``."""
        chances = self._hostile(joint_chances(self._others, here.mean), here.pi_r)
        may = self._hostile(joint_chances(self._others, here.may), here.robots_may)
        return soft_minimum(outcomes, chances, may, self._penalty)

    def _hostile(
        self,
        others: Shaped[np.ndarray, "state joint"],
        robots: Shaped[np.ndarray, "state robot"],
    ) -> Shaped[np.ndarray, "state group"]:
        """Chances of what the adversaries do together, or whether they may."""
        if self._adversary == "others":
            return others
        if self._adversary == "robots":
            return robots
        product = robots[:, :, None] * others[:, None]
        together: Shaped[np.ndarray, "state group"] = product.reshape(len(others), -1)
        return together


def soft_minimum(
    values: Float64[np.ndarray, "state group column"],
    chances: Float64[np.ndarray, "state group"],
    may: Bool[np.ndarray, "state group"],
    penalty: float,
) -> Float64[np.ndarray, "state column"]:
    """The least mean plus ``penalty`` times the bits by which the weights of it deviate.

    That is ``-penalty log2 E 2^(-values / penalty)``: the mean where the penalty is infinite, and
    the minimum over what may be done where it is 0.

    Args:
        values: Values of each joint action of the adversaries.
        chances: How likely each is modelled to be.
        may: Those that are possible at all.
        penalty: Cost of a bit.
    """
    if math.isinf(penalty):
        mean: Float64[np.ndarray, "state column"] = np.einsum("sjc,sj->sc", values, chances)
        return mean
    lowest: Float64[np.ndarray, "state column"] = np.where(may[:, :, None], values, np.inf).min(1)
    if penalty == 0:
        return lowest
    scaled = np.where(may[:, :, None], values - lowest[:, None], 0.0) * (math.log(2) / penalty)
    with np.errstate(divide="ignore"):
        logits = np.log(chances)[:, :, None] - scaled
        largest = logits.max(1, keepdims=True)
        log_mean = (largest + np.log(np.exp(logits - largest).sum(1, keepdims=True)))[:, 0]
        # The logarithm of about 1 has the digits of the difference from 1, which rounding may take
        # beyond -1 where it is not needed.
        difference = np.einsum("sjc,sj->sc", np.expm1(-scaled), chances)
        near_one = np.log1p(np.maximum(difference, -1.0))
    log_mean = np.where(log_mean > -0.5, near_one, log_mean)
    gain: Float64[np.ndarray, "state column"] = lowest - penalty / math.log(2) * log_mean
    return gain
