"""Points of a search, drawn at random or by a sampler of Optuna."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from empo_core.errors import ConfigError
from empo_core.trees import Json
from empo_sweep.sweep_config import Range, Search

Point = Mapping[str, Json]


def random_point(search: Search, number: int) -> dict[str, Json]:
    """The point with a number, determined by the search's seed."""
    generator = np.random.default_rng([search.seed, number])
    return {key: _drawn(values, generator) for key, values in search.space.items()}


def _drawn(values: Range | list[Json], generator: np.random.Generator) -> Json:
    if isinstance(values, list):
        return values[int(generator.integers(len(values)))]
    if values.step is not None or (values.integer and not values.log):
        points = values.points()
        return points[int(generator.integers(len(points)))]
    share = float(generator.random())
    if not values.log:
        return values.low + share * (values.high - values.low)
    drawn = float(values.low * (values.high / values.low) ** share)
    return round(drawn) if values.integer else min(max(drawn, values.low), values.high)


class Study:
    """A study of Optuna in memory, rebuilt from the log's events in order.

    The sampler is made anew for every point, with a seed of its own. So the same events lead to
    the same points and decisions, whether they just happened or are read from a file.
    """

    def __init__(self, search: Search) -> None:
        """Begin without trials.

        Raises:
            ConfigError: if optuna is not installed.
        """
        try:
            self._optuna = importlib.import_module("optuna")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"search.sampler {search.sampler!r} and pruners need the package optuna ({error}): "
                "pip install 'empo-sweep[optuna]'; 'random' and 'grid' do without"
            ) from error
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self._search = search
        self._study = self._optuna.create_study(
            direction=search.objective.direction,
            pruner=self._pruner(),
            sampler=self._optuna.samplers.RandomSampler(0),  # Never asked.
        )
        self._trials: list[Any] = []
        self._reported: dict[int, set[int]] = {}
        distributions = self._optuna.distributions
        self._space: dict[str, Any] = {}
        for key, values in search.space.items():
            if isinstance(values, list):
                self._space[key] = distributions.CategoricalDistribution(range(len(values)))
            elif values.integer:
                low, high, step = int(values.low), int(values.high), int(values.step or 1)
                self._space[key] = distributions.IntDistribution(low, high, values.log, step)
            else:
                self._space[key] = distributions.FloatDistribution(
                    values.low, values.high, values.log, values.step
                )

    def _pruner(self) -> Any:
        pruners, rule = self._optuna.pruners, self._search.pruner
        if rule is None:
            return pruners.NopPruner()
        if rule.name == "median":
            return pruners.MedianPruner(n_warmup_steps=rule.warmup_steps)
        return pruners.SuccessiveHalvingPruner(min_resource=max(1, rule.warmup_steps))

    def ask(self) -> dict[str, Json]:
        """The next point."""
        number = len(self._trials)
        seed = int(np.random.default_rng([self._search.seed, number]).integers(2**31))
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
        self._trials.append(self._study.ask(self._space))
        return {
            key: values[chosen] if isinstance(values := self._search.space[key], list) else chosen
            for key, chosen in self._trials[-1].params.items()
        }

    def plan(self, point: Point) -> None:
        """Add a point that was chosen elsewhere or earlier."""
        params = {
            key: values.index(point[key]) if isinstance(values, list) else point[key]
            for key, values in self._search.space.items()
        }
        self._study.enqueue_trial(params)
        self._trials.append(self._study.ask(self._space))

    def report(self, number: int, step: int, value: float) -> bool:
        """Add an intermediate value; true if the trial should be stopped."""
        steps = self._reported.setdefault(number, set())
        if step in steps:
            return False  # A run that was resumed repeats some steps.
        steps.add(step)
        trial = self._trials[number]
        trial.report(value, step)
        return bool(trial.should_prune())

    def tell(self, number: int, value: float | None, *, is_pruned: bool) -> None:
        """Record the end of a trial; ``value`` is None where the trial failed."""
        states = self._optuna.trial.TrialState
        if is_pruned and not self._reported.get(number):
            is_pruned = False
        state = states.PRUNED if is_pruned else states.FAIL if value is None else states.COMPLETE
        objective = None if state is not states.COMPLETE else value
        self._study.tell(self._trials[number], objective, state)
