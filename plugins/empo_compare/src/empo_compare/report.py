"""A comparison of runs as tables, as lines and as data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from empo_compare.comparison import Comparison, PolicyComparison
from empo_compare.curves import Band
from empo_compare.policy_differences import likeliest
from empo_compare.run_table import value_text

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, headings and rows."""
Results = Mapping[str, Mapping[str, tuple[float, float, int]]]
"""Mean, half the width of its interval, and number of runs, by summary key and group."""
BITS = "root.bits."
"""Powers in bits among the keys of summaries."""
OF_HUMANS = ("X_h", "I_h", "maximum")
"""What summaries give by the numbers of humans."""
MOST_STEPS = 8
"""Rows of a table of a curve."""


def tables(comparison: Comparison) -> Iterator[Table]:
    """The groups, what differs in their configs, their results, and their curves."""
    names = [group.name for group in comparison.groups]
    yield (
        "Groups",
        ("group", "n", "seeds", "runs"),
        [
            (
                group.name,
                str(len(group.runs)),
                " ".join(value_text(seed) for seed in group.seeds),
                " ".join(run.path.name for run in group.runs),
            )
            for group in comparison.groups
        ],
    )
    yield (
        "Configs",
        ("key", *names),
        [
            (key, *(value_text(values[name]) if name in values else "" for name in names))
            for key, values in comparison.differences.items()
        ],
    )
    humans = _human_names(comparison)
    yield (
        "Results",
        ("key", *names),
        [
            (
                _named(key, humans),
                *(_with_interval(*values[name][:2]) if name in values else "" for name in names),
            )
            for key, values in comparison.results.items()
        ],
    )
    has_rhos = any(key.endswith("theory.rho") for key in comparison.differences)
    if rows := list(_bits_rows(comparison.results, names, humans, with_l=not has_rhos)):
        title = f"Differences in bits, from {names[0]}"
        if has_rhos:
            title += " (without L, which means another thing for each rho; L_per_rho is alike)"
        yield title, ("key", *names[1:]), rows
    for metric, bands in comparison.bands.items():
        numbers = ", ".join(f"{name}: n = {band.number}" for name, band in bands.items())
        yield f"{metric} ({numbers})", ("step", *bands), _curve_rows(list(bands.values()))


def _human_names(comparison: Comparison) -> dict[str, str]:
    """The name of each human by number, where all runs that say it agree."""
    names: dict[str, set[str]] = {}
    for group in comparison.groups:
        for run in group.runs:
            root = run.summary.get("root")
            humans = root.get("humans") if isinstance(root, dict) else None
            for number, name in (humans if isinstance(humans, dict) else {}).items():
                names.setdefault(number, set()).add(str(name))
    return {number: next(iter(same)) for number, same in names.items() if len(same) == 1}


def _named(key: str, humans: Mapping[str, str]) -> str:
    """The key of a number about one human, with the human's name."""
    above, _, number = key.rpartition(".")
    is_of_human = above.rpartition(".")[2] in OF_HUMANS and number in humans
    return f"{above}.{humans[number]}" if is_of_human else key


def _bits_rows(
    results: Results, names: Sequence[str], humans: Mapping[str, str], *, with_l: bool
) -> Iterator[tuple[str, ...]]:
    """What later groups have more than the first, of each power in bits at the start."""
    for key, values in results.items():
        power = key.removeprefix(BITS)
        if power == key or power.startswith("maximum") or names[0] not in values:
            continue
        if power == "L" and not with_l:
            continue
        first = values[names[0]][0]
        differences = (
            f"{values[name][0] - first:+.4f}" if name in values else "" for name in names[1:]
        )
        yield _named(power, humans), *differences


def _curve_rows(bands: Sequence[Band]) -> list[tuple[str, ...]]:
    """Some of the steps at which all groups have values, or else at which any has one."""
    columns = [
        dict(zip(band.steps.tolist(), range(len(band.steps)), strict=True)) for band in bands
    ]
    common = sorted(set.intersection(*(set(column) for column in columns)))
    steps = common or sorted(set().union(*columns))
    chosen = np.unique(np.linspace(0, len(steps) - 1, MOST_STEPS).round().astype(int)).tolist()
    rows = []
    for step in (steps[index] for index in chosen):
        cells = [
            _with_interval(float(band.mean[at[step]]), float(band.half_width[at[step]]))
            if step in at
            else ""
            for band, at in zip(bands, columns, strict=True)
        ]
        rows.append((str(step), *cells))
    return rows


def _with_interval(mean: float, half_width: float) -> str:
    number = f"{mean:.5g}"
    return number if math.isnan(half_width) else f"{number} ± {half_width:.2g}"


def policy_lines(policies: Sequence[PolicyComparison]) -> Iterator[str]:
    """Where policies differ, a paragraph per state-time."""
    for pair in policies:
        title = f"Policies of {pair.first} and {pair.second}"
        if pair.world is None:
            yield f"{title} are not compared: {pair.reason}"
            continue
        if not pair.differences:
            yield f"{title} are the same wherever {pair.first} gets to."
            continue
        yield f"{title} differ by {pair.total:.4g} in an episode of {pair.first}"
        yield "(visits x total variation, summed). Most of it:"
        actions = pair.world.spec.robot_action_names
        for number, difference in enumerate(pair.differences, 1):
            yield ""
            yield (
                f"{number}. {difference.steps_left} steps left, {difference.occupancy:.3g} visits,"
            )
            yield f"   total variation {difference.distance:.3f}"
            yield f"   {pair.first}: {likeliest(difference.first, actions)}"
            yield f"   {pair.second}: {likeliest(difference.second, actions)}"
            yield from (f"   {line}" for line in pair.world.describe(difference.state).splitlines())
        yield ""


def as_data(comparison: Comparison, policies: Sequence[PolicyComparison]) -> dict[str, object]:
    """All of it as JSON data."""
    return {
        "groups": {
            group.name: {
                "runs": [str(run.path) for run in group.runs],
                "seeds": group.seeds,
            }
            for group in comparison.groups
        },
        "configs": comparison.differences,
        "results": {
            key: {name: _numbers(*entry) for name, entry in values.items()}
            for key, values in comparison.results.items()
        },
        "curves": {
            metric: {
                name: {
                    "n": band.number,
                    "steps": band.steps,
                    "mean": band.mean,
                    "half_width": band.half_width if band.number > 1 else None,
                }
                for name, band in bands.items()
            }
            for metric, bands in comparison.bands.items()
        },
        "policies": [_policy_data(pair) for pair in policies],
    }


def _numbers(mean: float, half_width: float, number: int) -> dict[str, object]:
    return {"mean": mean, "half_width": None if number == 1 else half_width, "n": number}


def _policy_data(pair: PolicyComparison) -> dict[str, object]:
    about: dict[str, object] = {"first": pair.first, "second": pair.second}
    if pair.world is None:
        return {**about, "reason": pair.reason}
    return {
        **about,
        "total": pair.total,
        "actions": pair.world.spec.robot_action_names,
        "states": [
            {
                "steps_left": difference.steps_left,
                "state": difference.state,
                "occupancy": difference.occupancy,
                "total_variation": difference.distance,
                pair.first: difference.first,
                pair.second: difference.second,
            }
            for difference in pair.differences
        ],
    }
