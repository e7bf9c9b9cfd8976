"""Points of a search, chosen by Optuna and recorded in Optuna's journal in the sweep's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from empo_core.errors import StorageError
from empo_core.runs.files import open_append
from empo_core.trees import Json
from empo_sweep.sweep_config import Range, Search

JOURNAL = "search.jsonl"
_MOST_DRAWS = 100
"""Draws of a point that differs from those before; after that the space is taken for exhausted."""


class Study:
    """The points of a search in their order; a sweep that is run again goes on with them.

    The sampler is made anew for every point, with a seed of its own, so that a search that was
    stopped draws the points that it would have drawn otherwise.

    Attributes:
        points: The values of each point.
    """

    def __init__(self, search: Search, folder: Path) -> None:
        """Read the journal in a sweep's folder, or begin one.

        Raises:
            StorageError: if the journal is damaged, or no regular file.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._search = search
        self._space = {key: _distribution(values) for key, values in search.space.items()}
        path = folder / JOURNAL
        _cut_torn_line(path)
        try:
            self._study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(path), _OneProcess(str(path)))),
                study_name="sweep",
                direction=search.objective.direction,
                pruner=_pruner(search),
                load_if_exists=True,
            )
            complete: list[FrozenTrial] = []
            self.points: list[Mapping[str, Json]] = []
            for trial in self._study.trials:
                # A process that was killed while it drew a point left some of its values.
                is_whole = trial.params.keys() == self._space.keys()
                if is_whole and (point := self._point(trial.params)) not in self.points:
                    complete.append(trial)
                    self.points.append(point)
        except Exception as error:
            raise StorageError(f"{path}: is damaged or not ours: {error}") from error
        self._trials = [Trial(self._study, trial._trial_id) for trial in complete]
        self._steps = [set(trial.intermediate_values) for trial in complete]
        self._told = {place for place, t in enumerate(complete) if t.state.is_finished()}

    def ask(self) -> Mapping[str, Json] | None:
        """A new point; None where none is left that differs from those before."""
        generator = np.random.default_rng([self._search.seed, len(self.points)])
        sampler = RandomSampler if self._search.sampler == "random" else TPESampler
        for _ in range(_MOST_DRAWS):
            self._study.sampler = sampler(seed=int(generator.integers(2**31)))
            trial = self._study.ask(self._space)
            if self._point(trial.params) not in self.points:
                return self._append(trial)
        return None

    def add(self, point: Mapping[str, Json]) -> None:
        """Add a point that was chosen elsewhere."""
        params = {
            key: values.index(point[key]) if isinstance(values, list) else point[key]
            for key, values in self._search.space.items()
        }
        trial = create_trial(state=TrialState.RUNNING, params=params, distributions=self._space)
        self._study.add_trial(trial)
        newest: FrozenTrial = self._study.trials[-1]
        self._append(Trial(self._study, newest._trial_id))

    def report(self, place: int, step: int, value: float) -> bool:
        """Add an intermediate value of a point; True if the point should be stopped."""
        if step in self._steps[place]:
            return False  # A run that was resumed repeats some steps.
        self._steps[place].add(step)
        self._trials[place].report(value, step)
        return self._trials[place].should_prune()

    def tell(self, place: int, value: float | None) -> None:
        """Record the value of a point, once; None where the point was stopped early."""
        if place not in self._told:
            self._told.add(place)
            state = TrialState.PRUNED if value is None else TrialState.COMPLETE
            self._study.tell(self._trials[place], value, state)

    def _append(self, trial: Trial) -> Mapping[str, Json]:
        self._trials.append(trial)
        self._steps.append(set())
        self.points.append(self._point(trial.params))
        return self.points[-1]

    def _point(self, params: Mapping[str, Json]) -> Mapping[str, Json]:
        space = self._search.space
        return {
            key: values[int(str(params[key]))] if isinstance(values, list) else params[key]
            for key, values in space.items()
        }


class _OneProcess(JournalFileOpenLock):
    """No lock of the journal, for one process at a time has the sweep's folder."""

    def acquire(self) -> bool:
        """Do nothing."""
        return True

    def release(self) -> None:
        """Do nothing."""


def _distribution(values: Range | list[Json]) -> BaseDistribution:
    if isinstance(values, list):
        return CategoricalDistribution(range(len(values)))
    if values.integer:
        step = int(values.step or 1)
        return IntDistribution(int(values.low), int(values.high), values.log, step)
    return FloatDistribution(values.low, values.high, values.log, values.step)


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    rule = search.pruner
    if rule is None:
        return optuna.pruners.NopPruner()
    if rule.name == "median":
        return optuna.pruners.MedianPruner(n_warmup_steps=rule.warmup_steps)
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=max(1, rule.warmup_steps))


def _cut_torn_line(path: Path) -> None:
    """Remove what a process that was killed wrote of its last line."""
    with open_append(path) as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
