"""Disempower-Grid (arXiv 2511.04177): who gains and who loses where a robot helps one of two.

Run ``python examples/benchmarks/disempower.py [OUT] [--quick | --embodied [--variations N ...]]``.
It plays all robots of the settings beside humans who pursue their true goals, and says by which
reference, a random or an idle assistant, each robot takes empowerment from the bystander while the
user gains. Results are kept in OUT (default: ``disempower``) as they come, so that an interrupted
run goes on where it was; then there are ``table.csv`` and ``table.png``. ``--quick`` plays the two
layouts whose assistant has no body; ``--embodied`` plays variations of the other two instead, which
takes minutes for each cell of the goal and up to 16 GB. The five hypotheses that were written
before are printed with their outcome.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from empo_benchmarks.disempower.params import published
from empo_core.config.files import read_yaml, validate_document
from empo_core.runs.atomic import write_file
from empo_pictures.figures import new_figure, write_figure

sys.path[:0] = [str(Path(__file__).parent)]

from disempower_course import IDLE, PROXIES, RANDOM, REFERENCES, Course, Score  # noqa: E402
from disempower_hypotheses import outcomes  # noqa: E402
from disempower_sampled import GoalCell  # noqa: E402
from disempower_settings import SETTINGS, Layout, Settings  # noqa: E402
from disempower_variations import Cases, comparisons, draw  # noqa: E402
from esr_scores import csv_text  # noqa: E402
from kept_runs import file_digest  # noqa: E402


@dataclass(frozen=True)
class Row:
    """A robot's line in the table; bits are differences from an idle assistant."""

    layout: str
    humans: str
    robot: str
    bits_user: float
    bits_bystander: float
    empowerment_user: float
    empowerment_bystander: float
    steps_user: float
    steps_bystander: float
    arrives_user: float
    arrives_bystander: float
    disempowers_against_random: bool
    disempowers_against_idle: bool
    v_r: float
    cpu_seconds: float

    @classmethod
    def of(
        cls, settings: Settings, layout: str, humans: str, robot: str, scores: dict[str, Score]
    ) -> Row:
        """The line of one robot among others."""
        resamples = settings.embodied.bootstrap
        score, idle = scores[robot], scores[IDLE]
        return cls(
            layout, humans, robot,
            *np.subtract(score.bits, idle.bits).tolist(),
            *score.empowerment, *score.steps, *score.arrives,
            score.disempowers(scores[RANDOM], resamples), score.disempowers(idle, resamples),
            score.v_r, score.cpu_seconds,
        )  # fmt: skip


class Results:
    """Scores that are kept in a folder, one file per layout, humans and robot.

    Args:
        folder: The folder.
        digest: Name of the settings that they belong to.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        self._folder, self._digest = folder, digest

    def _path(self, *names: str) -> Path:
        return self._folder / f"{'__'.join(names).lower().replace(' ', '_')}.json"

    def read(self, *names: str) -> Score | None:
        """A score of these settings, if there is one."""
        path = self._path(*names)
        if not path.is_file():
            return None
        saved = json.loads(path.read_text())
        if saved["settings"] != self._digest:
            return None
        print(f"{', '.join(names)}: read from {path}", flush=True)
        return Score(**saved["score"])

    def write(self, score: Score, *names: str) -> Score:
        """Keep a score."""
        saved = {"settings": self._digest, "score": asdict(score)}
        write_file(self._path(*names), json.dumps(saved) + "\n")
        print(f"{', '.join(names)}: {score.cpu_seconds:.1f} CPU seconds", flush=True)
        return score


def canonical_scores(
    settings: Settings, name: str, layout: Layout, humans: str, results: Results
) -> dict[str, Score]:
    """Scores of all robots of a layout, beside one kind of humans."""
    solved = settings.solved_robots()
    chosen = list(solved) if layout.robots is None else layout.robots
    names = [*REFERENCES, *PROXIES, *chosen]
    place = f"{name} T {layout.steps}"
    scores = {robot: results.read(place, humans, robot) for robot in names}
    missing = [robot for robot in names if scores[robot] is None]
    if missing:
        course = Course(settings, name, layout.steps, humans)
        for robot, score in course.scores(missing):
            scores[robot] = results.write(score, place, humans, robot)
    return {robot: score for robot, score in scores.items() if score is not None}


def embodied_scores(
    settings: Settings, layout: str, numbers: Sequence[int], results: Results
) -> dict[str, dict[str, Score]]:
    """Scores of references and solved robots in variations, by sampled episodes.

    Robots are solved side by side, once for all variations with one goal cell.
    """
    given, scores = settings.embodied, {number: {} for number in numbers}
    variations = published(layout).variations()
    goals: dict[str, list[int]] = {}
    for number in numbers:
        goals.setdefault(str(variations[number].goal_pos), []).append(number)
    for same_goal in goals.values():
        missing: dict[str, list[int]] = {}
        for name in (*REFERENCES, *given.robots):
            for number in same_goal:
                score = results.read(layout, str(number), name)
                if score is None:
                    missing.setdefault(name, []).append(number)
                else:
                    scores[number][name] = score
        if not missing:
            continue
        place = GoalCell(settings, variations[same_goal[0]])
        for name, robot in place.solve(list(missing)):
            for number in missing[name]:
                key = place.board.cell(variations[number].key_pos[0])
                score = place.play(robot, key, given.seed + number)
                scores[number][name] = results.write(score, layout, str(number), name)
    return {f"{layout} {number}": scores[number] for number in numbers}


def show(table: list[Row], footer: str) -> None:
    """Print the table."""
    shown = Table(title="Disempower-Grid", caption=footer)
    columns = (
        "I user",
        "I bystander",
        "emp user",
        "emp bystander",
        "steps user",
        "steps bystander",
    )
    for column in ("layout", "humans", "robot"):
        shown.add_column(column, no_wrap=True)
    for column in (*columns, "disempowers: random", "idle", "V_r", "CPU s"):
        shown.add_column(column, justify="right")
    for row in table:
        shown.add_row(
            row.layout, row.humans, row.robot,
            f"{row.bits_user:+.2f}", f"{row.bits_bystander:+.2f}",
            f"{row.empowerment_user:.3f}", f"{row.empowerment_bystander:.3f}",
            f"{row.steps_user:.1f}", f"{row.steps_bystander:.1f}",
            "yes" if row.disempowers_against_random else "no",
            "yes" if row.disempowers_against_idle else "no",
            f"{row.v_r:.9f}", f"{row.cpu_seconds:.1f}",
        )  # fmt: skip
    Console(width=200).print(shown)


def show_comparisons(settings: Settings, heading: str, cases: Cases) -> None:
    """Print shares with Wilson's intervals, medians and quartiles, and counts of signs."""
    caption = "median and quartiles of differences, and in how many variations more/fewer"
    shown = Table(title=f"Differences in {heading}", caption=caption)
    lines = list(comparisons(settings, cases))
    shown.add_column("robot, and beside which")
    for column in ("disempowers", "raw signs", *lines[0].differences):
        shown.add_column(column)
    for row in lines:
        cells = [
            value.shown(3 if name.startswith("emp") else 2)
            for name, value in row.differences.items()
        ]
        shown.add_row(
            f"{row.robot} | {row.reference}", row.disempowers.shown(3), row.raw.shown(3), *cells
        )
    Console(width=320).print(shown)


def write(table: list[Row], out: Path) -> None:
    """``table.png`` and ``.svg``: both humans' empowerment, robot by robot."""
    groups = list(dict.fromkeys((row.layout, row.humans) for row in table))[:4]
    figure, axes = new_figure(columns=len(groups), width=5.2 * len(groups), height=4.6)
    for axis, group in zip(np.atleast_1d(axes), groups, strict=True):
        rows = [row for row in table if (row.layout, row.humans) == group]
        for row in rows:
            mark = "s" if row.robot in REFERENCES else "o" if row.robot in PROXIES else "D"
            axis.plot(row.empowerment_user, row.empowerment_bystander, mark)
            axis.annotate(row.robot, (row.empowerment_user, row.empowerment_bystander), fontsize=6)
        reference = next(row for row in rows if row.robot == RANDOM)
        axis.axvline(reference.empowerment_user, color="0.7", lw=0.8)
        axis.axhline(reference.empowerment_bystander, color="0.7", lw=0.8)
        axis.set_title(f"{group[0]}, {group[1]} humans", fontsize=9)
        axis.set_xlabel("empowerment of the user, bits")
        axis.set_ylabel("of the bystander, bits")
    write_figure(figure, out / "table.png")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("disempower"))
    parser.add_argument("--quick", action="store_true", help="a few minutes")
    parser.add_argument(
        "--embodied",
        action="store_true",
        help="layouts with keys, for minutes per cell of the goal",
    )
    parser.add_argument("--variations", type=int, nargs="+", help="others than all 110")
    parser.add_argument(
        "--primary", action="store_true", help="of robots with keys those two that are compared"
    )
    parser.add_argument("--layouts", nargs="+", help="others than those of the settings")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    return parser.parse_args()


def check(given: argparse.Namespace, settings: Settings) -> None:
    """End with a message where options do not fit together, or name what is not there."""
    layouts = settings.quick if given.quick else settings.canonical
    names = settings.embodied.layouts if given.embodied else list(layouts)
    for name in given.layouts or ():
        if name not in names:
            sys.exit(f"--layouts {name}: these options play {' and '.join(names)}")
    if given.embodied and given.quick:
        sys.exit("--embodied and --quick play different layouts; leave one of them out")
    for option in ("variations", "primary"):
        if getattr(given, option) and not given.embodied:
            sys.exit(f"--{option} is about layouts with keys; add --embodied")
    for name in (given.layouts or names) if given.variations else ():
        count = len(published(name).variations())
        if not 0 <= min(given.variations) <= max(given.variations) < count:
            sys.exit(f"--variations {given.variations}: {name} has numbers 0 to {count - 1}")


def main() -> None:
    """Play all robots, print the table and the outcome of the hypotheses."""
    given = arguments()
    settings = validate_document(Settings, read_yaml(given.settings))
    check(given, settings)
    if given.primary:
        robots = [settings.primary.rival, settings.primary.proposal]
        embodied = settings.embodied.model_copy(update={"robots": robots})
        settings = settings.model_copy(update={"embodied": embodied})
    digest = file_digest(given.settings)
    footer = f"settings {given.settings.name} {digest}"
    print(footer)
    given.out.mkdir(parents=True, exist_ok=True)
    results = Results(given.out, digest)
    usual = next(iter(settings.humans))
    cases: dict[str, dict[str, Score]] = {}
    table: list[Row] = []
    if given.embodied:
        for layout in given.layouts or settings.embodied.layouts:
            numbers = given.variations or list(range(len(published(layout).variations())))
            cases |= embodied_scores(settings, layout, numbers, results)
        for case, scores in cases.items():
            table += [Row.of(settings, case, usual, robot, scores) for robot in scores]
        groups = {f"{len(cases)} variations": cases}
    else:
        layouts = settings.quick if given.quick else settings.canonical
        for name, layout in layouts.items():
            for humans in layout.humans if name in (given.layouts or layouts) else ():
                scores = canonical_scores(settings, name, layout, humans, results)
                table += [Row.of(settings, name, humans, robot, scores) for robot in scores]
                cases.setdefault(name, scores)
        groups = {f"{name}, for orientation": {name: scores} for name, scores in cases.items()}
    show(table, footer)
    names = settings.primary
    print(f"Proposal: {names.proposal}; rival: {names.rival}.")
    for heading, group in groups.items():
        print(f"Hypotheses in {heading}:")
        for line in outcomes(settings, group):
            print(line)
    write_file(given.out / "table.csv", f"{csv_text(table)}# {footer}\n")
    if given.embodied:
        for heading, group in groups.items():
            show_comparisons(settings, heading, group)
        draw(settings, given.out / "table.csv", given.out / "table.png")
    else:
        write(table, given.out)
    print(f"Wrote {given.out / 'table.csv'}")


if __name__ == "__main__":
    main()
