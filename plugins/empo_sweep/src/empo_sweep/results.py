"""Results of a sweep: each arm's mean over seeds and difference from the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from empo_compare.run_table import key_results
from empo_core.saved_run import read_run
from empo_core.trees import Json
from empo_learning.statistics import bootstrap, interquartile_mean, interval
from empo_sweep.arms import Arm, Sweep
from empo_sweep.sweep_config import Objective
from empo_sweep.trials import Status, Trials, TrialState, number_in, summary_of

FEWEST = 3
"""Seeds from which on an interval is told."""
FEWEST_IQM = 10
"""Seeds from which on the interquartile mean is told."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        n: Number of seeds.
        mean: Their mean.
        sd: Their standard deviation; None for one seed.
        half_width: Half the width of the mean's 95 % t interval; None for fewer than three.
    """

    n: int
    mean: float
    sd: float | None
    half_width: float | None


@dataclass(frozen=True)
class ArmResult:
    """Results of one arm.

    Attributes:
        arm: Its values.
        states: Its trials.
        values: The objective by seed, of the trials that are done and have it.
        mean: Over those seeds; None where there is none.
        difference: From the baseline, over the seeds that both have; None without any.
        iqm: Interquartile mean and its 95 % interval; None for fewer than ten seeds.
    """

    arm: Arm
    states: tuple[TrialState, ...]
    values: Mapping[int, float]
    mean: Estimate | None
    difference: Estimate | None
    iqm: tuple[float, float, float] | None

    def count(self, *status: Status) -> int:
        """The number of the arm's trials in one of these states."""
        return sum(state.status in status for state in self.states)


@dataclass(frozen=True)
class Results:
    """Results of a sweep.

    Attributes:
        name: Of the sweep.
        objective: What was compared.
        arms: The arms, in the order in which they were planned.
        baseline: The arm that others are compared with; None without.
        best: The arm with the best mean, if the file says what is better.
        further: Results of the other numbers that say most of a run; empty with an objective.
    """

    name: str
    objective: Objective
    arms: tuple[ArmResult, ...]
    baseline: Arm | None
    best: ArmResult | None
    further: tuple[Results, ...] = ()


def results_of(sweep: Sweep, trials: Trials) -> Results | None:
    """The results so far; None where no trial is done.

    Raises:
        ConfigError: if the baseline is none of the arms.
        StorageError: if a trial's result is missing or damaged.
    """
    finished = trials.in_state("done")
    if not finished:
        return None
    goal = sweep.config.goal
    if goal is not None:
        return _results(sweep, trials, goal, {s.trial.number: s.value for s in finished}, goal)
    summaries = {s.trial.number: summary_of(sweep.folder / s.trial.run) for s in finished}
    keys = list(key_results(read_run(sweep.folder / finished[0].trial.run))) or [""]
    values = [{number: number_in(s, key) for number, s in summaries.items()} for key in keys]
    first, *others = (
        _results(sweep, trials, Objective(key=key), numbers, None)
        for key, numbers in zip(keys, values, strict=True)
    )
    return replace(first, further=tuple(others))


def _results(
    sweep: Sweep,
    trials: Trials,
    objective: Objective,
    values: Mapping[int, float | None],
    goal: Objective | None,
) -> Results:
    """Results of one number; with a goal there is a best arm."""
    groups: dict[str, list[TrialState]] = {}
    for state in trials.states:
        groups.setdefault(repr(state.trial.arm), []).append(state)
    arms = [states[0].trial.arm for states in groups.values()]
    by_seed = [_by_seed(states, values) for states in groups.values()]
    place = sweep.baseline(arms)
    base = None if place is None else by_seed[place]
    arm_results = tuple(
        _arm(arm, states, seed_values, None if seed_values is base else base)
        for arm, states, seed_values in zip(arms, groups.values(), by_seed, strict=True)
    )
    return Results(
        name=sweep.name,
        objective=objective,
        arms=arm_results,
        baseline=None if place is None else arms[place],
        best=None if goal is None else _best(arm_results, goal),
    )


def _by_seed(states: Sequence[TrialState], values: Mapping[int, float | None]) -> dict[int, float]:
    by_seed = {state.trial.seed: values.get(state.trial.number) for state in states}
    return {seed: value for seed, value in by_seed.items() if value is not None}


def _arm(
    arm: Arm,
    states: Sequence[TrialState],
    values: Mapping[int, float],
    base: Mapping[int, float] | None,
) -> ArmResult:
    shared = sorted(values.keys() & base.keys()) if base is not None else []
    differences = [values[seed] - base[seed] for seed in shared] if base is not None else []
    numbers = np.array([values[seed] for seed in sorted(values)])
    iqm = None
    if len(numbers) >= FEWEST_IQM:
        iqm = float(interquartile_mean(numbers)), *bootstrap(numbers, interquartile_mean)
    return ArmResult(
        arm=arm,
        states=tuple(states),
        values=values,
        mean=_estimate(numbers),
        difference=_estimate(np.array(differences)),
        iqm=iqm,
    )


def _estimate(numbers: np.ndarray) -> Estimate | None:
    n = len(numbers)
    if n == 0:
        return None
    mean, half_width = interval(numbers)
    return Estimate(
        n=n,
        mean=float(mean),
        sd=float(numbers.std(ddof=1)) if n > 1 else None,
        half_width=float(half_width) if n >= FEWEST else None,
    )


def _best(arms: Sequence[ArmResult], goal: Objective) -> ArmResult | None:
    """The arm with the best mean among those of which most seeds are done."""
    having = [(arm.mean, arm) for arm in arms if arm.mean is not None]
    if not having:
        return None
    most_seeds = max(mean.n for mean, _ in having)
    sign = 1.0 if goal.direction == "maximize" else -1.0
    return max(
        (pair for pair in having if pair[0].n == most_seeds), key=lambda pair: sign * pair[0].mean
    )[1]


def as_data(results: Results) -> dict[str, Json]:
    """The results as JSON data."""
    return {
        "sweep": results.name,
        "objective": {"key": results.objective.key, "direction": results.objective.direction},
        "baseline": None if results.baseline is None else dict(results.baseline),
        "best": None if results.best is None else dict(results.best.arm),
        "arms": [_arm_data(arm) for arm in results.arms],
    }


def _arm_data(arm: ArmResult) -> Json:
    return {
        "arm": dict(arm.arm),
        "mean": _estimate_data(arm.mean),
        "difference": _estimate_data(arm.difference),
        "iqm": None
        if arm.iqm is None
        else {"mean": arm.iqm[0], "low": arm.iqm[1], "high": arm.iqm[2]},
        "trials": [
            {
                "run": state.trial.run,
                "seed": state.trial.seed,
                "status": state.status,
                "value": arm.values.get(state.trial.seed),
                "reason": state.reason,
            }
            for state in arm.states
        ],
    }


def _estimate_data(estimate: Estimate | None) -> Json:
    if estimate is None:
        return None
    return {
        "n": estimate.n,
        "mean": estimate.mean,
        "sd": estimate.sd,
        "half_width": estimate.half_width,
    }
