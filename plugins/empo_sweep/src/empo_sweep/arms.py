"""Configs of a sweep: every combination of its values (an arm) with every seed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from empo_compare.run_table import short_names, value_text
from empo_core.config import RunConfig
from empo_core.config.files import validate_document
from empo_core.config.overrides import set_value
from empo_core.config.yaml import Document, dump_yaml, parse_value, problems
from empo_core.errors import ConfigError
from empo_core.runs.atomic import digest
from empo_core.runs.directory import resolved
from empo_core.trees import Json
from empo_sweep.contents import Contents
from empo_sweep.sweep_config import MOST_TRIALS, SEED, Range, SweepConfig

Arm = Mapping[str, Json]
"""Values of the keys that vary."""
WITHIN = 0.382
"""Where a range is tried besides its ends: a number there is hardly ever whole by chance."""
_LONGEST_SLUG = 60


@dataclass(frozen=True)
class Trial:
    """One run of a sweep.

    Attributes:
        number: Its number, from 0.
        arm: The values that set it apart.
        seed: The run's seed.
        digest: Of its config, without the folder of runs, and of the world and files it names.
        run: Name of its run directory.
    """

    number: int
    arm: Arm
    seed: int
    digest: str
    run: str


@dataclass(frozen=True)
class Sweep:
    """A validated sweep.

    Attributes:
        config: What its file says.
        name: Of its folder.
        base: The config that all trials change.
        document: The sweep's file, for the places of values.
    """

    config: SweepConfig
    name: str
    base: Document
    document: Document

    @property
    def folder(self) -> Path:
        """Folder of the sweep's files and runs."""
        return self.config.sweeps / self.name

    @cached_property
    def seeds(self) -> list[int]:
        """Seeds that all arms share."""
        data = self.base.data
        base_seed = data.get(SEED, 0) if isinstance(data, dict) else 0
        seeds = self.config.over.get(SEED, [base_seed])
        valid = [seed for seed in seeds if isinstance(seed, int) and 0 <= seed < 2**32]
        if len(valid) < len(seeds):
            raise ConfigError(f"over.seed: seeds are whole numbers from 0 (got {seeds})")
        return valid

    @cached_property
    def _fixed(self) -> dict[str, Json]:
        """Keys with a single value, which all trials share."""
        over = self.config.over
        return {key: values[0] for key, values in over.items() if len(values) == 1 and key != SEED}

    def arms(self) -> Iterator[Arm]:
        """The arms that are fixed in advance, in order; none where a search chooses them.

        Raises:
            ConfigError: if the sweep has more than ``MOST_TRIALS`` trials.
        """
        search = self.config.search
        if search is not None and search.sampler != "grid":
            return
        lists = self._lists()
        rows = itertools.product(*lists.values())
        grid = itertools.product(rows, self.config.zip or [dict[str, Json]()])
        limit = None if search is None else search.trials
        for count, (row, zipped) in enumerate(itertools.islice(grid, limit)):
            if (count + 1) * len(self.seeds) > MOST_TRIALS:
                raise ConfigError(f"the sweep has more than {MOST_TRIALS:,} trials")
            arm: dict[str, Json] = dict(zip(lists, row, strict=True))
            yield arm | zipped

    def _lists(self) -> dict[str, list[Json]]:
        """The values to combine by key: those of the search, or of ``over``."""
        if self.config.search is not None:
            space = self.config.search.space
            return {k: v.points() if isinstance(v, Range) else v for k, v in space.items()}
        over = self.config.over
        return {key: values for key, values in over.items() if len(values) > 1 and key != SEED}

    def probes(self) -> list[Arm]:
        """Arms at the ends of every range and within, by which a search is checked beforehand."""
        search = self.config.search
        assert search is not None
        return [
            {key: _probe(values, share) for key, values in search.space.items()}
            for share in (0.0, WITHIN, 1.0)
        ]

    def config_of(self, arm: Arm, seed: int) -> RunConfig:
        """The config of one trial, whose run directories lie in the sweep's folder.

        Raises:
            ConfigError: if the config is not valid, with one located line per problem.
        """
        document = replace(self.base, data=deepcopy(self.base.data), marks=dict(self.base.marks))
        values = {**self._fixed, **arm}
        for key in self.config.swept():
            if key in values:
                # A copy, as YAML has it: what comes later may change parts of it.
                set_value(document, key, parse_value(dump_yaml(values[key])), self._place(key))
        set_value(document, SEED, seed, self._place(SEED))
        set_value(document, "runs", str(self.folder), self._place("runs"))
        return validate_document(RunConfig, document)

    def _place(self, key: str) -> str:
        for loc in (("over", key), ("search", "space", key), ("zip",)):
            if loc in self.document.marks:
                return self.document.place(loc)
        return self.document.name

    def trial(self, number: int, arm: Arm, seed: int) -> Trial:
        """A trial with its number.

        Raises:
            ConfigError: if the trial's config is not valid.
        """
        seal = self._config_digest(self.config_of(arm, seed))
        slug = re.sub(r"[^A-Za-z0-9._+-]+", "_", arm_text(arm, "_", "-"))[:_LONGEST_SLUG]
        parts = [f"trial-{number:04d}", slug.strip("_-."), f"s{seed}"]
        return Trial(number, arm, seed, seal, "-".join(filter(None, parts)))

    def trials(self) -> list[Trial]:
        """The trials that are fixed in advance; a search is checked at the ends of its ranges.

        Raises:
            ConfigError: if configs are not valid, with the distinct problems of all trials, or if
                the baseline is no arm.
        """
        trials: list[Trial] = []
        lines: dict[str, None] = {}
        pairs = [(arm, seed) for arm in self.arms() for seed in self.seeds]
        is_open = self.config.search is not None and not pairs
        for arm, seed in [(arm, 0) for arm in self.probes()] if is_open else pairs:
            try:
                trials.append(self.trial(len(trials), arm, seed))
            except ConfigError as error:
                lines |= dict.fromkeys(str(error).splitlines()[:-1])
        if lines:
            raise problems(lines)
        if not is_open:
            self.baseline([trial.arm for trial in trials[:: len(self.seeds)]])
        return [] if is_open else trials

    def baseline(self, arms: Sequence[Arm]) -> int | None:
        """Index of the baseline among the arms; None without a baseline.

        Raises:
            ConfigError: if the baseline fits no arm, or several.
        """
        baseline = self.config.baseline
        if baseline is None:
            return None
        fits = [
            place
            for place, arm in enumerate(arms)
            if all(key in arm and arm[key] == value for key, value in baseline.items())
        ]
        if len(fits) != 1:
            raise ConfigError(
                f"baseline: {len(fits)} of {len(arms)} arms have {baseline}; give values of the "
                "swept keys that one arm has"
            )
        return fits[0]

    def sealed(self, trials: Sequence[Trial]) -> str:
        """The sha256 of everything that determines the trials and their configs."""
        search = self.config.search
        return digest(
            {
                "trials": [[dict(trial.arm), trial.seed, trial.digest] for trial in trials],
                "search": None if search is None else search.model_dump(mode="json"),
                "probes": []
                if search is None
                else [self._config_digest(self.config_of(arm, 0)) for arm in self.probes()],
                "seeds": self.seeds,
            }
        )

    @cached_property
    def _contents(self) -> Contents:
        return Contents()

    def _config_digest(self, config: RunConfig) -> str:
        """The sha256 of a resolved config and its files, without the folder of its runs."""
        data = {key: value for key, value in resolved(config).items() if key != "runs"}
        return digest({"config": data, **self._contents.of(config)})


def arm_text(arm: Arm, equals: str = "=", between: str = " ") -> str:
    """The values of an arm with the last words of their keys."""
    names = short_names(arm)
    return between.join(f"{names[key]}{equals}{value_text(value)}" for key, value in arm.items())


def _probe(values: Range | list[Json], share: float) -> Json:
    """A value of a list, or of a range: 0 is the first, 1 the last."""
    if isinstance(values, list):
        return values[0 if share == 0 else -1]
    step = values.step or (1 if values.integer else None)
    offset = (values.high - values.low) * share
    value = values.low + (offset if step is None else int(offset / step + 1e-9) * step)
    return int(value) if values.integer else value
