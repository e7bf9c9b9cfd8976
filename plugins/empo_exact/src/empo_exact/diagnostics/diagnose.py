"""Who holds the power in a solved world, at the start or in a state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Float64, Int64

from empo_core.errors import ConfigError, SolveError
from empo_core.protocols import Tracker
from empo_core.stages import stage
from empo_core.types import WorldSpec
from empo_exact import ram
from empo_exact.diagnostics.canonical import canonical_powers
from empo_exact.diagnostics.coalitions import (
    CommonGoal,
    coalition_powers,
    common_goals,
    joint_capabilities,
    refuse_crowds,
)
from empo_exact.diagnostics.guarded import Guarded
from empo_exact.diagnostics.layers import layers_of
from empo_exact.diagnostics.reserve import reserve_check
from empo_exact.diagnostics.state_sets import goal_named, refuse_unknown_goals, states_in
from empo_exact.diagnostics.sweep import Quantity, Sweep, achieved_in
from empo_exact.plugin import Diagnostic, StateSet
from empo_exact.result import ExactResult
from empo_exact.solution import Solution, State, StateValues
from empo_exact.solve import solve_alone
from empo_theory.bits import aggregate_power, individual_power, long_term_power
from empo_theory.diagnostics import (
    Adversary,
    Alone,
    Coalitions,
    HumanPower,
    PowerFindings,
    Remainder,
    ReserveCheck,
    Threat,
    finite,
)
from empo_theory.parameters import CompleteTheory

PENALTIES = (0.1, 0.0)
"""What a bit of deviation costs adversaries, in units of capability."""
MOST_BY_DEFAULT = 8
"""Humans up to whose number a run is diagnosed where nobody says what to measure."""
MOST_WORK = 2_000_000_000
"""Values of successors, of all goals and times, that are read by default: some ten seconds."""
BY_DEFAULT: tuple[Diagnostic, ...] = ("alone", "vulnerability", "domination")

Finding = TypeVar("Finding")
Case = tuple[int, Adversary, float]
"""A human, who works against it, and what deviation costs these."""


def names_of(spec: WorldSpec, diagnostics: Sequence[Diagnostic] | None) -> list[Diagnostic]:
    """What is measured in a world: what is named, or what suits it."""
    if diagnostics is not None:
        return list(dict.fromkeys(diagnostics))
    if len(spec.humans) > MOST_BY_DEFAULT:
        return []
    return [name for name in BY_DEFAULT if spec.robots or name == "vulnerability"]


def refuse_unsuitable(
    spec: WorldSpec,
    diagnostics: Sequence[Diagnostic],
    coalition_goals: Mapping[str, StateSet] | None,
    reserve_states: StateSet | None,
) -> None:
    """Refuse what cannot be measured in a world, as far as its constants say.

    Raises:
        SolveError: if there are too many humans for coalitions.
        ConfigError: if a goal has no such name.
    """
    if "coalitions" in diagnostics:
        refuse_crowds(spec)
    for name, states in (coalition_goals or {}).items():
        key = _key_of(name)
        for human in spec.humans:
            goal_named(spec, human, name, key)
        refuse_unknown_goals(spec, states, key)
    if reserve_states is not None:
        refuse_unknown_goals(spec, reserve_states, RESERVE_KEY)


RESERVE_KEY = "algorithm.params.reserve_states"


def _key_of(name: str) -> str:
    return f"algorithm.params.coalition_goals.{name}"


def diagnose(
    result: ExactResult,
    diagnostics: Sequence[Diagnostic] | None = None,
    *,
    coalition_goals: Mapping[str, StateSet] | None = None,
    reserve_states: StateSet | None = None,
    penalties: Sequence[float] = PENALTIES,
    state: State | None = None,
    time: int = 0,
    tracker: Tracker | None = None,
    is_strict: bool = True,
) -> PowerFindings:
    """Who holds the power in a solved world.

    Args:
        result: The solved world, with the values of all times.
        diagnostics: What is to be measured; None: what its parameters say.
        coalition_goals: Goals of coalitions; None: what its parameters say.
        reserve_states: The further goal of the reserve check; None: what its parameters say.
        penalties: What a bit of deviation costs adversaries, in units of capability.
        state: Where, as a row or as a number; None: in expectation over the initial states.
        time: When; robots work.
        tracker: Told about progress.
        is_strict: What cannot be measured is an error; else the findings say why it is missing.

    Raises:
        SolveError: if something cannot be measured in this world, or values were not kept.
        ConfigError: if the world has no robot to be without.
        WorldError: if a set of states has rows that are none of the world's, or the state cannot
            be reached by that time.
    """
    params, spec = result.params, result.spec
    names = names_of(spec, params.diagnostics if diagnostics is None else diagnostics)
    coalition_goals = coalition_goals or params.coalition_goals
    reserve_states = reserve_states or params.reserve_states
    refuse_unsuitable(spec, names, coalition_goals, reserve_states)
    if not has_all_times(result):
        raise SolveError(
            "diagnostics need the values of all times: solve again with algorithm.params.keep=all "
            "or disk"
        )
    if state is not None:
        result.at(state, time)  # Refuses states and times that there are not.
        for name in {"reserve", "canonical"} & set(names):
            raise SolveError(f"{name} is measured at the start only; leave state and time out")
    place = Place.of(result, state, time)
    with stage((tracker or Tracker()).progress, "measuring who holds the power"):
        measurement = _Measurement(
            result, names, place, penalties, coalition_goals, reserve_states, is_strict=is_strict
        )
        return measurement.findings()


def has_all_times(result: ExactResult) -> bool:
    """Whether the values of all times at which somebody acts were kept."""
    times = range(1 if result.horizon is None else result.horizon)
    return result.is_whole and set(times) <= set(result.times)


@dataclass(frozen=True)
class Place:
    """Where and when power is measured.

    Attributes:
        states: Numbers of states [state].
        chance: The chance of each [state].
        time: The time.
        is_start: It is the beginning of an episode.
    """

    states: Int64[np.ndarray, " state"]
    chance: Float64[np.ndarray, " state"]
    time: int
    is_start: bool

    @classmethod
    def of(cls, result: ExactResult, state: State | None, time: int) -> Place:
        """A state at a time; None: the initial states."""
        if state is None:
            return cls(np.arange(len(result.start)), result.start, 0, is_start=True)
        return cls(np.array([result.index(state)]), np.ones(1), time, is_start=False)

    def values(self, solution: Solution) -> StateValues:
        """The values there, with working robots or without."""
        return solution.at_start() if self.is_start else solution.at(self.states[0], self.time)


def takes_seconds(result: ExactResult) -> bool:
    """Whether the first three diagnostics take seconds, and no minutes."""
    graph = result.graph
    return graph.num_transitions * len(graph.spec.goals) * (result.horizon or 1) <= MOST_WORK


class _Measurement:
    """Findings in the making."""

    def __init__(
        self,
        result: ExactResult,
        names: Sequence[Diagnostic],
        place: Place,
        penalties: Sequence[float],
        coalition_goals: Mapping[str, StateSet] | None,
        reserve_states: StateSet | None,
        *,
        is_strict: bool,
    ) -> None:
        self._result, self._names, self._is_strict = result, names, is_strict
        self._place, self._penalties = place, penalties
        self._coalition_goals, self._reserve_states = coalition_goals, reserve_states
        self._spec, self._achieved = result.spec, achieved_in(result.problem)
        self._left_out: list[str] = []

    def findings(self) -> PowerFindings:
        """Everything that is to be measured."""
        result = self._result
        alone = self._if_possible("alone", lambda: self._place.values(solve_alone(result)))
        reserve = self._if_possible("reserve", self._reserve)
        canonical = self._if_possible("canonical", lambda: canonical_powers(result))
        threats, coalitions = self._swept()
        humans = []
        for human, x_h in self._place.values(result).X_h.items():
            bits = finite(individual_power(x_h))
            humans.append(
                HumanPower(
                    human=human,
                    name=self._spec.agents[human].name,
                    bits=bits,
                    maximum=math.log2(goal_weights(result, human).sum()),
                    has_others=len(self._spec.humans) > 1,
                    alone=None if alone is None else _remainder(bits, alone.X_h[human]),
                    threats=[
                        _threat(bits, x, adversary, penalty)
                        for (of, adversary, penalty), x in threats.items()
                        if of == human
                    ],
                    canonical=None if canonical is None else canonical[human],
                )
            )
        return PowerFindings(
            humans=humans,
            robots=len(self._spec.robots),
            alone=None if alone is None else _alone(alone, result.params.theory),
            coalitions=coalitions,
            reserve=reserve,
            left_out=self._left_out,
        )

    def _if_possible(self, name: Diagnostic, measure: Callable[[], Finding]) -> Finding | None:
        """A finding, if it is to be measured and can be."""
        if name not in self._names:
            return None
        try:
            return measure()
        except (ConfigError, SolveError) as error:
            if self._is_strict:
                raise
            self._left_out.append(f"{name} was not measured: {error}")
            return None

    def _reserve(self) -> ReserveCheck | None:
        named = self._reserve_states
        states = None if named is None else states_in(self._result, named, RESERVE_KEY)
        check = reserve_check(self._result, states)
        if check is None:
            self._left_out.append(
                "The listed goals cover every state, so that there is no reserve to check: "
                "reserve_states may name states that could count more."
            )
        return check

    def _swept(self) -> tuple[dict[Case, float], Coalitions | None]:
        """X_h against adversaries, and coalitions: all in one sweep."""
        spec, theory, place = self._spec, self._result.params.theory, self._place
        cases = self._cases()
        quantities: list[Quantity] = [Guarded(spec, self._achieved, *case) for case in cases]
        goals = self._common_goals() if "coalitions" in self._names else []
        joint = joint_capabilities(spec, goals) if goals else []
        quantities += [quantity for _, *both in joint for quantity in both]
        if not quantities:
            return {}, None
        layers = layers_of(self._result)
        self._refuse_beyond_ram(len(layers), quantities)
        sweep = Sweep(self._result.problem, layers)
        numbers = sweep.at(quantities, place.states, place.time)
        threats = {
            case: float(
                place.chance @ (capability**theory.zeta) @ goal_weights(self._result, case[0])
            )
            for case, capability in zip(cases, numbers, strict=False)
        }
        if not goals:
            return threats, None
        of_coalitions = iter(numbers[len(cases) :])
        capability, best = {}, {}
        for members, *_ in joint:
            capability[members], best[members] = next(of_coalitions), next(of_coalitions)
        return threats, coalition_powers(spec, goals, capability, best, place.chance, theory.zeta)

    def _refuse_beyond_ram(self, layers: int, quantities: Sequence[Quantity]) -> None:
        """Refuse quantities that need more RAM than there is, at two times at once."""
        size = 2 * 8 * layers * sum(quantity.achieved.size for quantity in quantities)
        limit = ram.limit(self._result.params)
        if ram.used_bytes() + size > limit:
            raise SolveError(
                f"diagnostics need another {size / ram.GIB:.1f} GiB of RAM, and the limit is "
                f"{limit / ram.GIB:.1f} GiB in all: measure fewer at a time with "
                "empo diagnose RUN --measure NAME, or leave diagnostics out"
            )

    def _cases(self) -> list[Case]:
        adversaries: list[Adversary] = []
        if "vulnerability" in self._names:
            adversaries.append("others")
        if "domination" in self._names:
            adversaries.append("robots")
        if len(adversaries) == 2 and len(self._spec.humans) > 1:
            adversaries.append("all")
        return [
            (h, adversary, p)
            for h in self._spec.humans
            for adversary in adversaries
            for p in self._penalties
        ]

    def _common_goals(self) -> list[CommonGoal]:
        """The goals of coalitions; if there are none, the findings say so."""
        if len(self._spec.humans) == 1:
            self._left_out.append("There is one human only, so that coalitions were not measured.")
            return []
        named = self._coalition_goals
        if named is not None:
            return [
                CommonGoal(
                    name,
                    {h: goal_named(self._spec, h, name, _key_of(name)) for h in self._spec.humans},
                    states_in(self._result, states, _key_of(name)),
                )
                for name, states in named.items()
            ]
        goals = common_goals(self._spec, self._achieved)
        if not goals:
            self._left_out.append(
                "The humans have no goal in common, a set of states that all of them list, so that "
                "coalitions were not measured: coalition_goals may name goals."
            )
        return goals


def _remainder(before: float | None, x_h: float) -> Remainder:
    """What is left of a power, by X_h."""
    bits = finite(individual_power(x_h))
    return Remainder(bits=bits, lost=None if before is None or bits is None else before - bits)


def _threat(before: float | None, x_h: float, adversary: Adversary, penalty: float) -> Threat:
    """The same against adversaries, who add no power, if rounding might."""
    left = _remainder(before, x_h)
    lost = None if left.lost is None else max(0.0, left.lost)
    return Threat(adversary=adversary, penalty=penalty, bits=left.bits, lost=lost)


def _alone(values: StateValues, theory: CompleteTheory) -> Alone:
    """Aggregate and long-term power without robots."""
    return Alone(
        P=finite(aggregate_power(values.U_r, theory.eta)),
        L=finite(long_term_power(float(values.norms[-1]), theory.rho)),
    )


def goal_weights(solution: Solution, human: int) -> Float64[np.ndarray, " goal"]:
    """The factors of a human's goals in X_h."""
    spec = solution.spec
    weight = np.array([spec.goals[goal].weight for goal in spec.goals_of(human)], np.float64)
    return weight if solution.problem.theory.is_weighted else np.ones_like(weight)
