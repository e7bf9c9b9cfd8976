"""Reasons: the difference of two Q_r, split exactly over future steps, humans and goals.

Unrolling equation (9), Q_r(s, t, a) is the sum over future steps of the expected, discounted U_r
there, and of the terminal value where episodes end; or, where presence counts, of U_r there. U_r
in turn differs from its value now by secants of equations (7) and (8), which split it over humans
and goals: every level is a sum. These are identities of the solved model, not estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Integer
from torch import Tensor

from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import Tracker
from empo_core.suggestions import nearest
from empo_core.types import WorldSpec
from empo_inspector.costs import Costs, costs
from empo_inspector.decision import KeptLoop, OneStep, Outcomes, Policies
from empo_theory.inspection import Inspection, not_split
from empo_theory.parameters import CompleteTheory

TIE = 1e-9
"""Difference of Q_r, relative to Q_r, below which two actions are equally good."""
MOST_NAMES = 20
NEAR = 1e-8
"""Relative difference below which a secant is computed by its series."""
FAR = 0.5
"""Relative difference above which powers are subtracted as they are."""


@dataclass(frozen=True)
class Origin:
    """The step that contributes most to the part of a goal, among those with its sign.

    Attributes:
        step: How many steps from now, at least 1.
        state: What the run calls the state that contributes most there.
        chances: V_h^e there after the first action and after the second, averaged over the states
            in which an episode may be then; 0 where all are over.
    """

    step: int
    state: int
    chances: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """Parts of the difference between Q_r of two joint robot actions, in one state at one time.

    ``parts`` and ``ends`` together sum to ``gap`` where the values are exact; learned values
    leave a ``remainder``. Of robots averse to risk, ``parts``, ``ends`` and ``origins`` are empty,
    for Q_r is no sum then, and ``costs`` says what it is made of.

    Attributes:
        spec: The world's specification.
        row: The state row [word].
        number: What the run calls the state.
        time: Steps of the episode so far.
        policies: Policies in the state.
        outcomes: Values in the state.
        first: The joint robot action explained.
        second: The one it is compared with.
        gap: Q_r of the first minus Q_r of the second.
        parts: What each goal contributes k + 1 steps later [step goal].
        ends: What the ends of episodes contribute k + 1 steps later [step].
        origins: Where the part of each goal arises.
        achieved: Whether the state is in each goal [goal].
        bits: I_h of each human here, then in the next state on average, after the first action and
            after the second; -infinity where a next state may leave it without power [3 human].
        theory: The parameters of the values; attainability is a chance only where gamma_h is 1.
        v_r: V_r in the state as it was solved or learned.
        bellman_remainder: That minus what equation (9) makes of the values one step later.
        norm: Norm of order ``theory.rho`` of the robots' cost in the state.
        costs: Costs of what follows the first action and the second; None where Q_r is a sum.
        first_failed: As in ``Inspection``.
    """

    spec: WorldSpec
    row: Integer[np.ndarray, " word"]
    number: int
    time: int
    policies: Policies
    outcomes: Outcomes
    first: int
    second: int
    gap: float
    parts: Float64[np.ndarray, "step goal"]
    ends: Float64[np.ndarray, " step"]
    origins: list[Origin]
    achieved: list[bool]
    bits: Float64[np.ndarray, "3 human"]
    theory: CompleteTheory
    v_r: float
    bellman_remainder: float
    norm: float
    costs: Costs | None
    first_failed: int | None

    def state_name(self, number: int) -> str:
        """The number of a state, and that robots have failed there, if they have."""
        if self.first_failed is None or number < self.first_failed:
            return f"{number}"
        return f"{number} (robots have failed)"

    @property
    def remainder(self) -> float:
        """Part of the gap that Bellman remainders, here and later, make; 0 unless learned."""
        return self.gap - float(self.parts.sum() + self.ends.sum())

    @property
    def steps_left(self) -> int | None:
        """Steps from here to the end of the episode; None where the world has no horizon."""
        return None if self.spec.horizon is None else self.spec.horizon - self.time

    @property
    def chances(self) -> Float64[np.ndarray, "2 goal"]:
        """V_h^e of each goal after the first and after the second action."""
        chances: Float64[np.ndarray, "2 goal"]
        chances = self.outcomes.q_e[0, [self.first, self.second]].numpy()
        return chances

    @property
    def is_tie(self) -> bool:
        """The two actions are equally good."""
        q_r = self.policies.q_r[0]
        return is_tie(float(q_r[self.first]), float(q_r[self.second]))

    @property
    def ties(self) -> list[int]:
        """Other joint robot actions that are as good as the first."""
        q_r = self.policies.q_r[0].tolist()
        others = (action for action in range(len(q_r)) if action != self.first)
        return [action for action in others if is_tie(q_r[self.first], q_r[action])]


def find_reasons(
    inspection: Inspection,
    state: int = 0,
    time: int | None = None,
    first: int | str | None = None,
    second: int | str | None = None,
    tracker: Tracker | None = None,
) -> Reasons:
    """Split the difference between Q_r of two joint robot actions.

    Args:
        inspection: What is known.
        state: Position of the state in ``inspection.rows``.
        time: Steps of the episode so far; None means the earliest time of the inspection.
        first: A joint robot action, by index or name; None means the most probable one.
        second: Another one; None means the most probable one that is not equally good.
        tracker: Is told how many of the future steps are done.

    Raises:
        ConfigError: if an action does not exist or is not available.
        WorldError: if nobody acts there, the state cannot be reached by then, or there is no other
            action to compare.
    """
    time = inspection.first_time if time is None else time
    here, step = torch.tensor([state]), OneStep(inspection)
    _check(inspection, step, state, time)
    policies = step.policies(here, time)
    outcomes = step.outcomes(here, time, policies)
    first, second = _actions(inspection.spec, policies, first, second)
    parts, ends, origins = np.zeros((0, len(inspection.spec.goals))), np.zeros(0), list[Origin]()
    costs_after = None
    if not_split(inspection.theory) is None:
        parts, ends, origins = _split(
            step, state, time, policies, (first, second), outcomes, tracker or Tracker()
        )
    else:
        costs_after = costs(step, state, time, policies, (first, second))
    at, norms = time - inspection.first_time, inspection.norm
    v_r = float(inspection.v_r[at][state])
    return Reasons(
        spec=inspection.spec,
        row=inspection.rows[state],
        number=int(inspection.number[state]),
        time=time,
        policies=policies,
        outcomes=outcomes,
        first=first,
        second=second,
        gap=float(policies.q_r[0, first] - policies.q_r[0, second]),
        parts=parts,
        ends=ends,
        origins=origins,
        achieved=step.achieved(here)[0].tolist(),
        bits=np.concatenate(
            [outcomes.x_h.log2().numpy(), _bits_after(step, state, time, policies, (first, second))]
        ),
        theory=inspection.theory,
        v_r=v_r,
        bellman_remainder=float(step.bellman_remainder(here, time, policies)[0]),
        norm=-v_r if norms is None else float(norms[at][state]),
        costs=costs_after,
        first_failed=inspection.first_failed,
    )


def _bits_after(
    step: OneStep, state: int, time: int, policies: Policies, actions: tuple[int, int]
) -> Float64[np.ndarray, "2 human"]:
    """The mean of I_h over the next states, after each of two joint robot actions."""
    chosen = torch.nn.functional.one_hot(torch.tensor(actions), step.spec.num_robot_actions)
    states, mass = step.follow(
        torch.tensor([state]), policies.chance, chosen.double()[None], discounted=False
    )
    bits = step.reward(step.next_v_e(time)[states])[0].log2()
    # What is not led to does not count, whatever it is.
    weighted = torch.where(mass[:, :, None] > 0, mass[:, :, None] * bits[:, None], 0.0)
    mean: Float64[np.ndarray, "2 human"] = weighted.sum(0).numpy()
    return mean


def _check(inspection: Inspection, step: OneStep, state: int, time: int) -> None:
    name = repr(inspection.spec.name)
    if not inspection.first_time <= time <= inspection.last_time:
        raise WorldError(
            f"there is no decision at time {time} in {name}: times go from "
            f"{inspection.first_time} to {inspection.last_time}"
        )
    if not bool(step.alive(torch.tensor([state]), time)[0]):
        raise WorldError(f"the episode is over in state {inspection.number[state]} of {name}")
    if np.isnan(inspection.v_r[time - inspection.first_time][state]):
        raise WorldError(f"{name} cannot be in that state after {time} steps")


def _actions(
    spec: WorldSpec, policies: Policies, first: int | str | None, second: int | str | None
) -> tuple[int, int]:
    """The two joint actions that are compared."""
    q_r = policies.q_r[0].tolist()
    order = policies.pi_r[0].argsort(descending=True, stable=True).tolist()
    ranked = [action for action in order if not math.isnan(q_r[action])]
    second = None if second is None else _available(spec, second, ranked)
    if first is None:
        chosen = next((action for action in ranked if action != second), ranked[0])
    else:
        chosen = _available(spec, first, ranked)
    others = [action for action in ranked if action != chosen]
    if second is None and not others:
        raise WorldError(
            f"{spec.robot_action_names[chosen]!r} is the only action in that state, so there is "
            "nothing to compare it with"
        )
    worse = (action for action in others if not is_tie(q_r[chosen], q_r[action]))
    return chosen, next(worse, others[0]) if second is None else second


def is_tie(value: float, other: float) -> bool:
    """True where two values of Q_r are equally good."""
    return abs(value - other) <= TIE * abs(value)


def _available(spec: WorldSpec, choice: int | str, available: list[int]) -> int:
    """The index of an available joint robot action."""
    names = spec.robot_action_names
    listed = ", ".join(repr(names[action]) for action in sorted(available)[:MOST_NAMES])
    if choice not in (range(len(names)) if isinstance(choice, int) else names):
        guess = nearest(str(choice), names)
        advice = f"Did you mean {guess!r}? " if guess else ""
        raise ConfigError(
            f"the robots have no action {choice!r}. {advice}In that state there are {listed}"
        )
    index = choice if isinstance(choice, int) else names.index(choice)
    if index not in available:
        raise ConfigError(f"{names[index]!r} is not available in that state; there are {listed}")
    return index


def _split(
    step: OneStep,
    state: int,
    time: int,
    policies: Policies,
    actions: tuple[int, int],
    outcomes: Outcomes,
    tracker: Tracker,
) -> tuple[Float64[np.ndarray, "step goal"], Float64[np.ndarray, " step"], list[Origin]]:
    """Contributions of goals and of ends to the difference of Q_r, per future step."""
    spec, inspection = step.spec, step.inspection
    loop = inspection.closed_loop or KeptLoop(step)
    chosen = torch.nn.functional.one_hot(torch.tensor(actions), spec.num_robot_actions).double()
    places, masses = step.follow(torch.tensor([state]), policies.chance, chosen[None])
    states, mass = inspection.number[places.numpy()], masses.numpy()
    parts, ends, chances, peaks = (list[Tensor]() for _ in range(4))
    num_steps = inspection.num_states if spec.horizon is None else spec.horizon - time
    while len(states):
        tracker.progress("following episodes", len(parts), num_steps)
        time += spec.horizon is not None
        after = loop.follow(states, time, mass)
        alive = torch.from_numpy(after.alive)
        here, v_e = torch.from_numpy(mass), torch.from_numpy(after.v_e)
        difference = here[:, 0] - here[:, 1]
        weight = (difference * torch.from_numpy(after.accrued))[alive]
        gains = goal_gains(step, v_e[alive], outcomes.v_e[0])
        part, end = weight @ gains, weight.sum() * outcomes.u_r[0]
        if step.counts_presence:
            last = step.end_weight(time) * difference[~alive]
            part += last @ goal_gains(step, v_e[~alive], outcomes.v_e[0])
            end += last.sum() * outcomes.u_r[0]
        else:
            end += step.theory.terminal_value * difference[~alive].sum()
        parts.append(part)
        ends.append(end)
        share = here[alive] / here[alive].sum(0).clamp(min=torch.finfo(here.dtype).tiny)
        chances.append(share.T @ v_e[alive])
        contributions = weight[:, None] * gains
        places = torch.from_numpy(states)[alive]
        peaks.append(
            torch.stack([places[_first_of_most(side * contributions)] for side in (1, -1)])
            if len(places)
            else torch.zeros(2, len(spec.goals)).long()
        )
        states, mass = after.reached, after.mass
    tracker.progress("following episodes", num_steps, num_steps)
    found_parts = torch.stack(parts)
    origins = _origins(found_parts, torch.stack(chances), torch.stack(peaks))
    return found_parts.numpy(), torch.stack(ends).numpy(), origins


def _first_of_most(contributions: Float[Tensor, "state goal"]) -> Integer[Tensor, " goal"]:
    """The first state that contributes as much to each goal as any does, but for rounding."""
    largest = contributions.amax(0)
    return (contributions >= largest - TIE * largest.abs()).to(torch.int8).argmax(0)


def _origins(
    parts: Float[Tensor, "step goal"],
    chances: Float[Tensor, "step 2 goal"],
    peaks: Integer[Tensor, "step 2 goal"],
) -> list[Origin]:
    """Where the part of each goal arises."""
    origins = []
    for goal, total in enumerate(parts.sum(0).tolist()):
        side = 1 if total >= 0 else -1
        step = int(_first_of_most(side * parts[:, goal : goal + 1]))
        state = int(peaks[step, 0 if side > 0 else 1, goal])
        first, second = chances[step, :, goal].tolist()
        origins.append(Origin(step + 1, state, (first, second)))
    return origins


def goal_gains(
    step: OneStep, v_e: Float[Tensor, "state goal"], reference: Float[Tensor, " goal"]
) -> Float[Tensor, "state goal"]:
    """U_r of each state minus U_r of a reference, split over the goals of all humans."""
    spec, theory = step.spec, step.theory
    weight = step.weight if theory.x_agg == "weighted" else torch.ones_like(step.weight)
    x, x_there = step.reward(v_e)[0], step.reward(reference[None])[0]
    floored, floored_there = (power.clamp(min=step.inspection.x_h_floor) for power in (x, x_there))
    counted = step.counted.double()
    z, z_there = counted * floored**-theory.xi, counted * floored_there**-theory.xi
    humans = int(step.counted.sum()) if theory.u_agg == "mean" else 1
    outer = secant(z.sum(1) / humans, z_there.sum(1) / humans, theory.eta)
    inner = counted * secant(floored, floored_there, -theory.xi)
    raised = (x != floored) | (x_there != floored_there)
    # Where an X_h is raised to the least, only a part of its difference counts.
    slope = (floored - floored_there) / (x - x_there).where(x != x_there, torch.ones_like(x))
    slopes = outer[:, None] * torch.where(raised, inner * slope, inner) / -humans
    human_index = torch.tensor([spec.humans.index(goal.human) for goal in spec.goals])
    # In place, for these arrays are by far the largest.
    share = (v_e**theory.zeta).sub_(reference**theory.zeta).mul_(weight)
    return share.mul_(slopes.index_select(1, human_index))


def secant(
    value: Float[Tensor, "*batch"], reference: Float[Tensor, "*#batch"], exponent: float
) -> Float[Tensor, "*batch"]:
    """``(value**exponent - reference**exponent) / (value - reference)``, the slope if equal."""
    ratio = value / reference
    gap = (value - reference) / reference
    near, far = gap.abs() < NEAR, gap.abs() > FAR
    safe = torch.where(near, torch.ones_like(gap), gap)
    relative = torch.where(far, ratio**exponent - 1, torch.expm1(exponent * torch.log1p(gap)))
    series = exponent * (1 + (exponent - 1) / 2 * gap)
    return reference ** (exponent - 1) * torch.where(near, series, relative / safe)
