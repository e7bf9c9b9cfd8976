"""Pictures and tables of the latent agent's learning curves."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from latent_agents import AGENTS, SAC, TASKS

from empo_core.config import EnvironmentRef
from empo_latent.published import STEPS, PublishedReturns
from empo_latent.published import published as published_returns
from empo_learning.statistics import interval
from empo_pictures.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAST = 3
"""Evaluations at the end of a curve whose mean the table has: single ones scatter."""
SHADES = ("black", "dimgrey", "darkgrey")
STYLES = {"planner": "o-", "policy": "x--"}


class Row(NamedTuple):
    """Result of one evaluation of a run."""

    task: str
    agent: str
    seed: int
    actor: str
    environment_step: int
    value: float
    seconds: float


def read(paths: Iterable[Path]) -> list[Row]:
    """Rows of all learning-curve CSV files."""
    rows = []
    for path in paths:
        task, agent, seed = path.stem.split("_")
        with path.open(encoding="utf-8") as file:
            rows += [
                Row(
                    task, agent, int(seed), line["actor"], int(line["environment_step"]),
                    float(line["return_mean"]), float(line["seconds"]),
                )
                for line in csv.DictReader(file)
            ]  # fmt: skip
    return rows


def grouped(rows: Iterable[Row]) -> dict[tuple[str, str, str], dict[int, list[float]]]:
    """Returns of all seeds by task, agent and actor, and then by environment steps."""
    groups: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row.environment_step):
        steps = groups.setdefault((row.task, row.agent, row.actor), defaultdict(list))
        steps[row.environment_step].append(row.value)
    return groups


def complete(by_step: dict[int, list[float]]) -> dict[int, list[float]]:
    """Returns at the steps that all seeds reached."""
    seeds = max(map(len, by_step.values()))
    return {step: values for step, values in by_step.items() if len(values) == seeds}


def reference(task: str) -> PublishedReturns | None:
    """Published returns of other agents in a task, if known; they saw no pictures."""
    return published_returns(EnvironmentRef.model_validate(TASKS[task]))


def plot(rows: Sequence[Row], out: Path) -> list[Path]:
    """A picture of each task."""
    paths = []
    for task in dict.fromkeys(row.task for row in rows):
        paths.append(out / f"{task}.png")
        picture([row for row in rows if row.task == task]).savefig(paths[-1], dpi=110)
    return paths


def picture(rows: Sequence[Row]) -> Figure:
    """Curves of a task, or points where all runs were evaluated only once, after as many steps."""
    figure, (axes,) = new_figure(width=6.4, height=4.8)
    if len({row.environment_step for row in rows}) > 1:
        draw_curves(axes, rows)
    else:
        draw_points(axes, rows)
    axes.set(title=rows[0].task, ylabel="mean return of evaluations")
    figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    return figure


def draw_curves(axes: Axes, rows: Sequence[Row]) -> None:
    """Means by environment steps; only steps that all seeds reached have one."""
    for (_, agent, actor), by_step in sorted(grouped(rows).items()):
        whole = complete(by_step)
        values = np.array(list(whole.values()))
        seeds = values.shape[1]
        label = f"{agent}, {actor} acts ({seeds} seed{'s' * (seeds > 1)})"
        colour = colour_of(agent)
        axes.plot(list(whole), values.mean(1), STYLES[actor], ms=4, color=colour, label=label)
        axes.fill_between(list(whole), values.min(1), values.max(1), color=colour, alpha=0.12)
    for words, value, shade in published(rows[0].task):
        axes.hlines(value, 0.96 * STEPS, 1.04 * STEPS, color=shade, lw=2.5, label=words)
    axes.set(xlabel="environment steps")
    axes.set_xlim(left=0)


def draw_points(axes: Axes, rows: Sequence[Row]) -> None:
    """Every seed of every agent; all of them were evaluated after the same number of steps."""
    agents = [agent for agent in (*AGENTS, SAC) if any(row.agent == agent for row in rows)]
    for actor in sorted({row.actor for row in rows}):
        acting = [row for row in rows if row.actor == actor]
        places = [agents.index(row.agent) for row in acting]
        returns = [row.value for row in acting]
        marker = STYLES[actor][0]
        axes.plot(places, returns, marker, color="C0", label=f"{actor} acts, one seed")
    for words, value, shade in published(rows[0].task):
        axes.axhline(value, color=shade, lw=1, label=words)
    axes.set_xticks(range(len(agents)), agents, rotation=45, ha="right", rotation_mode="anchor")
    axes.set(xlabel=f"agent after {rows[0].environment_step:,} environment steps")


def colour_of(agent: str) -> Any:
    """A colour for matplotlib, the same in every picture: ten each, strong, pale and dark."""
    from matplotlib import color_sequences

    if agent == SAC:
        return "black"
    paired, dark = color_sequences["tab20"], color_sequences["tab20b"]
    colours = [*paired[::2], *paired[1::2], *dark[::4], *dark[1::4]]
    return colours[list(AGENTS).index(agent)]


def published(task: str) -> list[tuple[str, int, str]]:
    """Published returns in a task: in words, the number, and the colour of its line."""
    known = reference(task)
    if known is None:
        return []
    marks = {"TD-MPC2": known.tdmpc2, "SAC": known.sac, "DreamerV3": known.dreamer}
    return [
        (f"{agent} after {STEPS:,} (published)", value, shade)
        for (agent, value), shade in zip(marks.items(), SHADES, strict=True)
    ]


def training_returns(out: Path) -> dict[tuple[str, str], list[float]]:
    """Mean returns of the newest training episodes at the ends of runs, by task and agent, [seed].

    Where runs are short, single evaluations scatter more than these. A run in which no episode
    ended has none.
    """
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for path in sorted(out.glob("training/*.csv")):
        task, agent, _ = path.stem.split("_")
        with path.open(encoding="utf-8") as file:
            returns = [line["episode/return_mean"] for line in csv.DictReader(file)]
        found[task, agent] += [float(known) for known in returns if known][-1:]
    return found


def table(rows: Sequence[Row], training: dict[tuple[str, str], list[float]]) -> str:
    """The ends of all curves, in Markdown: of each seed the mean of its last evaluations."""
    lines = [
        "| task | agent | who acts | seeds | environment steps | mean return (95 % interval) "
        "| newest 20 training episodes "
        f"| TD-MPC2 / SAC / DreamerV3 after {STEPS:,} (published) |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for (task, agent, actor), by_step in sorted(grouped(rows).items()):
        whole = complete(by_step)
        last = list(whole)[-LAST:]
        evaluated = np.mean([whole[step] for step in last], axis=0)
        trained = training.get((task, agent))
        known = reference(task)
        others = f"{known.tdmpc2} ± {known.spread} / {known.sac} / {known.dreamer}" if known else ""
        steps = f"{last[0]:,} to {last[-1]:,}" if len(last) > 1 else f"{last[0]:,}"
        lines.append(
            f"| {task} | {agent} | {actor} | {len(evaluated)} | {steps} | {in_words(evaluated)} "
            f"| {in_words(trained) if trained else ''} | {others} |"
        )
    return "\n".join(lines)


def in_words(values: Sequence[float]) -> str:
    """Mean over seeds, and half of its 95 % interval."""
    mean, half = interval(np.asarray(values))
    return f"{mean:.0f} ({'one seed' if len(values) == 1 else f'± {half:.0f}'})"
