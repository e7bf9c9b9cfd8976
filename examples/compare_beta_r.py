"""What the robot's rationality beta_r changes: one world, solved for several values.

Run it with ``python examples/compare_beta_r.py [PICTURE]``. It prints a table and writes a
plot, by default ``compare_beta_r`` as PNG, SVG and PDF in the current folder.
"""

import sys
from pathlib import Path

import rich
from matplotlib.axes import Axes
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_pictures.figures import new_figure, write_figure
from empo_theory.parameters import CompleteTheory

WORLD = "multigrid/free_the_human"
BETAS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)


def results() -> dict[float, ExactResult]:
    """The exact result for each value; everything else stays the same."""
    world = build(WorldModelRef.model_validate({"name": WORLD}))
    return {
        beta: solve(world, ExactParams(preset="paper", theory=CompleteTheory(beta_r=beta)))
        for beta in BETAS
    }


def table(found: dict[float, ExactResult]) -> Table:
    """Values and the robot's policy in the start state, one row per value of beta_r."""
    spec = next(iter(found.values())).spec
    actions = spec.agents[spec.robots[0]].actions
    shown = Table(title=f"{spec.name}: start state")
    for column in ("beta_r", "V_r", "X_h", *actions):
        shown.add_column(column, justify="right")
    for beta, result in found.items():
        start = result.at(0)
        numbers = [start.V_r, start.X_h[spec.humans[0]], *start.pi_r]
        shown.add_row(f"{beta:g}", *(f"{number:.3f}" for number in numbers))
    return shown


def plot(found: dict[float, ExactResult], path: Path) -> None:
    """Draw the goals' attainability and the robot's policy over beta_r."""
    spec = next(iter(found.values())).spec
    starts = [result.at(0) for result in found.values()]
    figure, (left, right) = new_figure(columns=2, width=9)
    for index, goal in enumerate(spec.goals):
        _curve(left, index, [start.V_e[index] for start in starts], goal.name)
    left.set_ylabel("the human can attain the goal ($V_h^e$)")
    for index, action in enumerate(spec.agents[spec.robots[0]].actions):
        _curve(right, index, [start.pi_r[index] for start in starts], action)
    right.set_ylabel("probability of the robot's first action")
    for axes in (left, right):
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlabel(r"$\beta_r$")
        axes.set_ylim(-0.02, 1.02)
        axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    write_figure(figure, path)


def _curve(axes: Axes, index: int, heights: list[float], label: str) -> None:
    # Hollow markers of several shapes and sizes stay visible where curves coincide.
    marker = "osD^v<>"[index % 7]
    axes.plot(BETAS, heights, marker=marker, ms=5 + index % 7, mfc="none", label=label)


def main() -> None:
    """Solve, print, plot."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "compare_beta_r.png")
    found = results()
    rich.print(table(found))
    plot(found, path)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
