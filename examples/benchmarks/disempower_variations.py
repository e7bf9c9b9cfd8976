"""What robots do over many variations of a layout: shares, quartiles, signs, and a picture.

Run ``python examples/benchmarks/disempower_variations.py [PICTURE]``. It draws what robots do in
the 110 variations of ``push_only``, by ``disempower_push_only.csv``, the table of
``disempower.py --embodied --layouts push_only``, as ``disempower_variations.png`` and ``.svg``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent)]

from disempower_course import EQUAL, HUMANS, IDLE, RANDOM, Score  # noqa: E402
from disempower_settings import SETTINGS, Settings  # noqa: E402
from esr_scores import Estimate, share  # noqa: E402

from empo_core.config.files import read_yaml, validate_document  # noqa: E402
from empo_pictures.figures import new_figure, write_figure  # noqa: E402

TABLE = Path(__file__).with_name("disempower_push_only.csv")
"""The table of the 110 variations of a layout."""
Cases = Mapping[str, Mapping[str, Score]]
METRICS: dict[str, Callable[[Score], tuple[float, float]]] = {
    "I": lambda score: score.bits,
    "emp": lambda score: score.empowerment,
    "steps": lambda score: score.steps,
}
"""What is compared, of user and bystander."""
AGENTS = ("user", "bystander")


@dataclass(frozen=True)
class Differences:
    """How a number differs from the one beside another robot, over variations.

    Attributes:
        quartiles: First quartile, median and third quartile.
        more: In how many variations it is larger.
        fewer: In how many it is smaller.
    """

    quartiles: tuple[float, float, float]
    more: int
    fewer: int

    @classmethod
    def of(cls, values: np.ndarray) -> Differences:
        """Of differences, one per variation."""
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        return cls((low, middle, high), int((values > EQUAL).sum()), int((values < -EQUAL).sum()))

    def shown(self, digits: int) -> str:
        """As the table shows it."""
        low, middle, high = (f"{value:+.{digits}f}" for value in self.quartiles)
        return f"{middle} [{low}, {high}] {self.more}/{self.fewer}"


@dataclass(frozen=True)
class Comparison:
    """A robot beside a reference, over variations.

    Attributes:
        robot: The robot.
        reference: The reference.
        disempowers: Share of variations in which the user's emp rises and the bystander's falls.
        raw: The same by signs that may be chance.
        differences: Of each metric and human.
    """

    robot: str
    reference: str
    disempowers: Estimate
    raw: Estimate
    differences: dict[str, Differences]


def comparisons(settings: Settings, cases: Cases) -> Iterator[Comparison]:
    """Robots beside a random and an idle assistant, and the proposal beside the rival."""
    names, rows = settings.primary, list(cases.values())
    pairs = [(robot, reference) for reference in (RANDOM, IDLE) for robot in rows[0]]
    pairs.append((names.proposal, names.rival))
    for robot, reference in pairs:
        if robot == reference:
            continue
        ours, others = ([row[name] for row in rows] for name in (robot, reference))
        both = list(zip(ours, others, strict=True))
        signs = np.array([np.subtract(a.empowerment, b.empowerment) for a, b in both])
        judged = [a.disempowers(b, settings.embodied.bootstrap) for a, b in both]
        yield Comparison(
            robot,
            reference,
            share(np.array(judged)),
            share((signs[:, 0] > EQUAL) & (signs[:, 1] < -EQUAL)),
            {
                f"{metric} {AGENTS[human]}": Differences.of(
                    np.array([of(a)[human] - of(b)[human] for a, b in both])
                )
                for metric, of in METRICS.items()
                for human in range(HUMANS)
            },
        )


def draw(settings: Settings, table: Path, picture: Path) -> None:
    """Changes of emp and of bits from a random assistant, and the user's steps on its goal.

    Args:
        settings: The settings.
        table: The table of variations, as ``disempower.py`` writes it.
        picture: Where to write the picture.
    """
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    rows: dict[str, dict[str, dict[str, str]]] = {}
    for row in csv.DictReader(lines):
        rows.setdefault(row["robot"], {})[row["layout"]] = row

    def numbers(robot: str, metric: str) -> np.ndarray:
        values = [[row[f"{metric}_{agent}"] for agent in AGENTS] for row in rows[robot].values()]
        return np.array(values, np.float64).T

    figure, axes = new_figure(columns=3, width=13.5, height=4.4)
    panels = {"empowerment": "emp", "bits": "I"}
    for axis, (metric, title) in zip(axes, panels.items(), strict=False):
        axis.axhline(0, color="0.7", lw=0.8)
        axis.axvline(0, color="0.7", lw=0.8)
        for robot in rows:
            if robot != RANDOM:
                change = numbers(robot, metric) - numbers(RANDOM, metric)
                mark = "s" if robot == IDLE else "o"
                axis.plot(*change, mark, ms=4, alpha=0.6, label=robot)
        axis.set_title(f"change of {title} from a random assistant, bits", fontsize=10)
        axis.set_xlabel("user")
        axis.set_ylabel("bystander")
    axes[0].legend(fontsize=7)
    names = settings.primary
    rival, proposal, random = (
        numbers(robot, "steps")[0] for robot in (names.rival, names.proposal, RANDOM)
    )
    axes[2].plot(rival, proposal, "o", ms=4, alpha=0.6)
    axes[2].plot(rival, random, "s", ms=4, alpha=0.6, color="0.6")
    top = max(rival.max(), proposal.max(), random.max())
    axes[2].plot([0, top], [0, top], color="0.7", lw=0.8)
    axes[2].set_title("steps of the user on its goal, by variation", fontsize=10)
    axes[2].set_xlabel(f"beside {names.rival}")
    axes[2].set_ylabel(f"beside {names.proposal} (squares: random)", fontsize=9)
    write_figure(figure, picture)


def main() -> None:
    """Draw the table that is kept beside this file."""
    picture = Path(sys.argv[1] if len(sys.argv) > 1 else "disempower_variations.png")
    draw(validate_document(Settings, read_yaml(SETTINGS)), TABLE, picture)


if __name__ == "__main__":
    main()
