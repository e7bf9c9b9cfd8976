"""Capability that other agents cannot take away, however far they stray from what they would do.

C^lambda is the least capability that they can bring about if each bit by which their behaviour
deviates from the modelled one costs them ``penalty``: the recursion is a soft minimum over what
they do. It falls to a minimum over all that they may do where deviating is free.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float64

from empo_core.types import WorldSpec
from empo_exact.diagnostics.sweep import ROBOTS, Behaviour, Outcomes, joint_chances
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
        self._human, self._others = human, [other for other in spec.humans if other != human]
        self._actions = spec.num_actions[human]
        self._penalty = penalty
        self._hostile = {
            "others": [*reversed(self._others)],
            "robots": [ROBOTS],
            "all": [ROBOTS, *reversed(self._others)],
        }[adversary]
        self.achieved = achieved[:, self._goals]

    def of(self, here: Behaviour, outcomes: Outcomes) -> Float64[np.ndarray, "state column"]:
        """See ``sweep.Quantity``."""
        own = here.pi_h[:, self._goals, : self._actions].transpose(0, 2, 1)
        outcomes = outcomes.expect(self._human, own)
        policies, may = here.mean | {ROBOTS: here.pi_r}, here.may | {ROBOTS: here.robots_may}
        for agent in outcomes.agents:
            if agent not in self._hostile:
                outcomes = outcomes.expect(agent, policies[agent])
        return soft_minimum(
            outcomes.together(),
            joint_chances(outcomes.agents, policies),
            joint_chances(outcomes.agents, may),
            self._penalty,
        )


def soft_minimum(
    values: Float64[np.ndarray, "state joint column"],
    chances: Float64[np.ndarray, "state joint"],
    may: Bool[np.ndarray, "state joint"],
    penalty: float,
) -> Float64[np.ndarray, "state column"]:
    """The least mean plus ``penalty`` times the bits by which the weights of it deviate.

    That is ``-penalty log2 E 2^(-values / penalty)``: the mean where the penalty is infinite, and
    the minimum over what may be done where it is 0.

    Args:
        values: Values of each joint action.
        chances: How likely each is modelled to be.
        may: Those that are possible at all.
        penalty: Cost of a bit.
    """
    if math.isinf(penalty):
        return np.einsum("sjc,sj->sc", values, chances)
    least = np.where(may[:, :, None], values, np.inf).min(1)
    if penalty == 0:
        return least
    # 2^-x loses the digits of large x, and of x near 0; the difference from the minimum is neither.
    above = np.where(may[:, :, None], values - least[:, None], 0.0)
    strain = np.einsum("sjc,sj->sc", np.expm1(-above * (math.log(2) / penalty)), chances)
    gain: Float64[np.ndarray, "state column"] = least - penalty / math.log(2) * np.log1p(strain)
    return gain
