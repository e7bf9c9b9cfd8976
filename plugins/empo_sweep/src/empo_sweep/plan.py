"""The plan of a sweep's trials: fixed in advance, or chosen as others end."""

from __future__ import annotations

from collections.abc import Sequence

from empo_core.errors import ConfigError
from empo_sweep.arms import Arm, Sweep, Trial
from empo_sweep.points import Study, random_point
from empo_sweep.trial_log import ENDS, TrialLog, TrialState


class Plan:
    """Adds trials to the log: all at once where they are fixed, else the seeds of one point.

    Attributes:
        total: How many trials there will be.
    """

    def __init__(
        self, sweep: Sweep, trials: Sequence[Trial], log: TrialLog, *, retry: bool
    ) -> None:
        """Go on after the trials of the log.

        Args:
            sweep: The sweep.
            trials: Those that are known beforehand.
            log: Its log.
            retry: Whether trials that failed are run again.

        Raises:
            ConfigError: if the config of a trial in the log has changed, or Optuna is missing.
        """
        self._sweep, self._log = sweep, log
        self._seeds, search = len(sweep.seeds), sweep.config.search
        self.total = len(trials) if search is None or trials else search.trials * self._seeds
        self._study = Study(search) if search is not None and search.needs_optuna else None
        self._ended: dict[int, int] = {}
        for state in log.states:
            self._check(state.trial)
        log.plan(trials[len(log.states) :])
        self._replay(retry)

    def _check(self, trial: Trial) -> None:
        if self._sweep.trial(trial.number, trial.arm, trial.seed) != trial:
            raise ConfigError(
                f"{self._sweep.folder / trial.run}: was planned with another config; give the "
                "sweep another name (name=...), or remove its folder"
            )

    def _replay(self, retry: bool) -> None:
        """Replay the log's events to the study, in order."""
        if self._study is None:
            return
        last = {event.trial: place for place, event in enumerate(self._log.history)}
        for place, event in enumerate(self._log.history):
            point, seed = divmod(event.trial, self._seeds)
            if event.event == "planned" and seed == 0:
                self._study.plan(event.arm)
            elif event.event == "reported" and event.step is not None and event.value is not None:
                self._study.report(point, event.step, event.value)
            elif (
                event.event in ENDS
                and last[event.trial] == place
                and not (retry and event.event == "failed")
            ):
                self.end(event.trial)

    def more(self) -> Sequence[TrialState]:
        """Plan the seeds of the next point; none where all trials are planned.

        Raises:
            ConfigError: if the point makes no valid config.
        """
        begin = len(self._log.states)
        if begin >= self.total:
            return ()
        point, num_planned = divmod(begin, self._seeds)  # A kill may have left a part of the seeds.
        arm = self._log.states[begin - 1].trial.arm if num_planned else self._next_arm(point)
        trials = [
            self._sweep.trial(begin + index, arm, seed)
            for index, seed in enumerate(self._sweep.seeds[num_planned:])
        ]
        self._log.plan(trials)
        return self._log.states[begin:]

    def _next_arm(self, point: int) -> Arm:
        search = self._sweep.config.search
        assert search is not None
        if self._study is not None and search.sampler == "tpe":
            return self._study.ask()
        arm = random_point(search, point)
        if self._study is not None:
            self._study.plan(arm)
        return arm

    def report(self, trial: int, step: int, value: float) -> bool:
        """Record an intermediate value; True if the trial should be stopped."""
        return self._study is not None and self._study.report(trial // self._seeds, step, value)

    def end(self, trial: int) -> None:
        """Report a trial's end to the study, once all seeds of its point have ended."""
        point = trial // self._seeds
        self._ended[point] = self._ended.get(point, 0) + 1
        if self._study is None or self._ended[point] < self._seeds:
            return
        states = self._log.states[point * self._seeds : (point + 1) * self._seeds]
        values = [state.value for state in states if state.value is not None]
        value = sum(values) / self._seeds if len(values) == self._seeds else None
        pruned = any(state.status == "pruned" for state in states)
        self._study.tell(point, value, is_pruned=pruned)
