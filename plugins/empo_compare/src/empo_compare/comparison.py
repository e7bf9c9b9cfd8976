"""Runs compared: groups that differ in the seed alone, their configs, results and curves."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from empo_compare.curves import Band, band_of
from empo_compare.policy_differences import PolicyDifference, policy_differences
from empo_compare.run_table import NOT_COMPARED, leaves, short_names, value_text, varying
from empo_core import open_run
from empo_core.errors import ConfigError, EmpoError
from empo_core.experiment import Experiment
from empo_core.protocols import WorldModel
from empo_core.saved_run import SavedRun
from empo_core.suggestions import nearest
from empo_core.trees import Json
from empo_learning.statistics import interval
from empo_theory.solved_world import SolvedWorld

MOST_PANELS = 4
"""Metrics that are shown where none are asked for."""
_FIRST = ("exact/", "eval/", "episode/return", "loss/")
_LONGEST_LABEL = 60
_DIGITS = 12
"""Digits of digests that are shown."""


@dataclass(frozen=True)
class Group:
    """Runs whose configs are equal but for the seed.

    Attributes:
        name: A letter.
        runs: The runs.
        config: Their config by key path, without the seed and the folder of the runs.
    """

    name: str
    runs: tuple[SavedRun, ...]
    config: Mapping[str, Json]

    @property
    def seeds(self) -> list[Json]:
        """The seeds of the runs."""
        return [run.config.get("seed") for run in self.runs]


@dataclass(frozen=True)
class Comparison:
    """What ``empo compare`` shows of groups of runs, by name of the group.

    Attributes:
        groups: The groups.
        labels: The name and, where that is short, what differs in the config.
        differences: Values of config keys that differ; a group without a key lacks it.
        results: Mean, half the width of its 95 % interval, and number of runs, by summary key.
        bands: Curves by metric.
    """

    groups: tuple[Group, ...]
    labels: Mapping[str, str]
    differences: Mapping[str, Mapping[str, Json]]
    results: Mapping[str, Mapping[str, tuple[float, float, int]]]
    bands: Mapping[str, Mapping[str, Band]]


@dataclass(frozen=True)
class PolicyComparison:
    """Where the policies of two groups' first runs differ; or why that is not known.

    Attributes:
        first, second: Names of the groups.
        world: The world of both; None where they are not compared.
        differences: The state-times that matter most.
        total: Occupancy times total variation, summed over all.
        reason: Why they are not compared; None where they are.
    """

    first: str
    second: str
    world: WorldModel | None = None
    differences: tuple[PolicyDifference, ...] = ()
    total: float = 0.0
    reason: str | None = None


def compare_runs(paths: Sequence[Path], metrics: Sequence[str] = ()) -> Comparison:
    """Compare runs; one that is given twice counts once.

    Args:
        paths: Their directories.
        metrics: Curves to show; where there are none, those that say most.

    Raises:
        ConfigError: if there are fewer than two runs, or no run has such a metric.
        StorageError: if a run is damaged.
    """
    runs = {path.resolve(): path for path in paths}
    if len(runs) < 2:
        raise ConfigError("name at least two different runs to compare")
    groups = _grouped([open_run(path) for path in runs.values()])
    differences = _differences(groups)
    return Comparison(
        groups=groups,
        labels=_labels(groups, differences),
        differences=differences,
        results=_results(groups),
        bands={metric: _bands(groups, metric) for metric in _metrics(groups, metrics)},
    )


def compare_policies(groups: Sequence[Group], max_states: int) -> list[PolicyComparison]:
    """The policy of the first group with an exact one beside those of all later groups.

    Args:
        groups: Groups; of each the first run counts.
        max_states: Number of state-times to name per pair.
    """
    first: tuple[Group, SolvedWorld, WorldModel | None] | None = None
    comparisons = []
    for group in groups:
        try:
            run = Experiment.load(group.runs[0].path)
            result = run.algorithm.reopen(run.context)
            if not isinstance(result, SolvedWorld) or result.occupancy() is None:
                continue
            if first is None:
                first = group, result, run.context.world
            else:
                comparisons.append(_policies(*first, group, result, max_states))
        except EmpoError as error:
            name = groups[0].name if first is None else first[0].name
            comparisons.append(PolicyComparison(name, group.name, reason=str(error)))
    return comparisons


def _policies(
    group_a: Group,
    first: SolvedWorld,
    world: WorldModel | None,
    other: Group,
    second: SolvedWorld,
    max_states: int,
) -> PolicyComparison:
    worlds = [_world(group.runs[0]) for group in (group_a, other)]
    if worlds[0] != worlds[1]:
        return PolicyComparison(group_a.name, other.name, reason="their worlds differ")
    best, total = policy_differences(first, second, max_states)
    return PolicyComparison(group_a.name, other.name, world, tuple(best), total)


def _grouped(runs: Sequence[SavedRun]) -> tuple[Group, ...]:
    members: dict[str, list[SavedRun]] = {}
    configs: dict[str, dict[str, Json]] = {}
    for run in runs:
        config = {key: value for key, value in run.config.items() if key not in NOT_COMPARED}
        contents = _contents(run)
        key = repr((config, contents))
        members.setdefault(key, []).append(run)
        configs[key] = leaves(config) | contents
    return tuple(
        Group(_letters(index), tuple(members[key]), configs[key])
        for index, key in enumerate(members)
    )


def _contents(run: SavedRun) -> dict[str, Json]:
    """The begins of digests of a run's world and of its other inputs, for names say little."""
    of_world = [*leaves({"": run.config.get("world_model")}).values()]
    contents: dict[str, Json] = {
        f"inputs.{name}": entry.sha256[:_DIGITS]
        for name, entry in run.inputs.files.items()
        if f"inputs/{name}" not in of_world
    }
    if run.inputs.world_digest is not None:
        contents["world_model.content"] = run.inputs.world_digest[:_DIGITS]
    return contents


def _world(run: SavedRun) -> Json:
    """What tells a run's world from others."""
    digest = run.inputs.world_digest
    return run.config.get("world_model") if digest is None else digest


def _letters(index: int) -> str:
    """``A`` to ``Z``, then ``AA`` and so on, as in spreadsheets."""
    before, last = divmod(index, 26)
    return (_letters(before - 1) if before else "") + string.ascii_uppercase[last]


def _differences(groups: Sequence[Group]) -> dict[str, dict[str, Json]]:
    return {
        key: {group.name: group.config[key] for group in groups if key in group.config}
        for key in varying([group.config for group in groups])
    }


def _labels(
    groups: Sequence[Group], differences: Mapping[str, Mapping[str, Json]]
) -> dict[str, str]:
    names = short_names(differences)
    labels = {}
    for group in groups:
        pairs = (
            f"{names[key]}={value_text(values[group.name])}"
            for key, values in differences.items()
            if group.name in values
        )
        text = " ".join(pairs)
        if not text or len(text) > _LONGEST_LABEL:
            text = group.runs[0].path.name
        labels[group.name] = f"{group.name}: {text} (n = {len(group.runs)})"
    return labels


def _results(groups: Sequence[Group]) -> dict[str, dict[str, tuple[float, float, int]]]:
    """Numbers of the summaries; those in lists are too many for a table."""
    results: dict[str, dict[str, tuple[float, float, int]]] = {}
    for group in groups:
        numbers: dict[str, list[float]] = {}
        for run in group.runs:
            for key, value in leaves(run.summary).items():
                in_list = any(part.isdigit() for part in key.split(".")[1:-1])
                if isinstance(value, int | float) and not in_list:
                    numbers.setdefault(key, []).append(float(value))
        for key, values in numbers.items():
            mean, half_width = interval(np.array(values))
            entry = float(mean), float(half_width), len(values)
            results.setdefault(key, {})[group.name] = entry
    return results


def _metrics(groups: Sequence[Group], requested: Sequence[str]) -> list[str]:
    having: dict[str, int] = {}
    for group in groups:
        for key in {key for run in group.runs for key in run.metrics}:
            having[key] = having.get(key, 0) + 1
    for key in requested:
        if key not in having:
            near = nearest(key, sorted(having))
            hint = f"; did you mean {near!r}?" if near else ""
            raise ConfigError(f"--metric {key}: no run has logged it{hint}")
    if requested:
        return list(dict.fromkeys(requested))
    shared = sorted(having, key=lambda key: (-having[key], _rank(key), key))
    return shared[:MOST_PANELS]


def _rank(metric: str) -> int:
    ranks = (index for index, start in enumerate(_FIRST) if metric.startswith(start))
    return next(ranks, len(_FIRST))


def _bands(groups: Sequence[Group], metric: str) -> dict[str, Band]:
    bands = {
        group.name: band_of([run.metrics[metric] for run in group.runs if metric in run.metrics])
        for group in groups
    }
    return {name: band for name, band in bands.items() if band is not None}
