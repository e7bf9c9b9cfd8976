"""What the objective changes: three worlds, each solved under five objectives.

Run it with ``python examples/choose_objective.py [PICTURE]``. It prints a table and writes a plot,
by default ``choose_objective.png`` and ``.svg`` in the current folder.
"""

import sys
from pathlib import Path
from typing import Any

import rich
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_pictures.figures import COLOURS, new_figure, write_figure

WORLDS: dict[str, tuple[str, dict[str, Any]]] = {
    "press": ("crush", {"beta_r": 5.0}),
    "lottery": ("gamble", {"beta_r": 20.0}),
    "backstop": ("build", {"beta_r": 30.0, "robot_model": "optimistic", "beta_h": 8.0}),
}
"""The telling action of the robot in each world, and what is the same under all objectives."""
OBJECTIVES: dict[str, dict[str, Any]] = {
    "paper": {"preset": "paper"},
    "fair": {"preset": "fair"},
    "rho 4": {"preset": "fair", "theory": {"rho": 4}},
    "delta 1/8": {"preset": "fair", "defunct": {"rate": 0.125}},
    "rho 4, delta 1/8": {"preset": "fair", "theory": {"rho": 4}, "defunct": {"rate": 0.125}},
}


def first_actions() -> dict[str, dict[str, float]]:
    """How likely the robot begins with the telling action, by world and objective."""
    chances = {}
    for name, (action, shared) in WORLDS.items():
        file = Path(__file__).parent / "objectives" / f"{name}.yaml"
        reference = {"name": "table", "params": {"file": str(file)}}
        world = build(WorldModelRef.model_validate(reference))
        place = world.spec.robot_action_names.index(action)
        chances[name] = {
            title: float(solve(world, _params(objective, shared)).at(0).pi_r[place])
            for title, objective in OBJECTIVES.items()
        }
    return chances


def _params(objective: dict[str, Any], shared: dict[str, Any]) -> ExactParams:
    """The parameters of an objective, at equal ``beta_r * rho``: raising rho sharpens, too."""
    theory = {**shared, **objective.get("theory", {})}
    theory["beta_r"] /= theory.get("rho", 1)
    return ExactParams.model_validate({**objective, "theory": theory})


def table(chances: dict[str, dict[str, float]]) -> Table:
    """The chances, a row for each world."""
    shown = Table(title="Chance of the robot's first action")
    for column in ("world", "action", *OBJECTIVES):
        shown.add_column(column, justify="left" if column in ("world", "action") else "right")
    for name, by_objective in chances.items():
        shown.add_row(name, WORLDS[name][0], *(f"{p:.3f}" for p in by_objective.values()))
    return shown


def plot(chances: dict[str, dict[str, float]], path: Path) -> None:
    """Draw the chances as bars, a panel for each world."""
    figure, panels = new_figure(columns=len(chances), width=10, height=3.2)
    for axes, (name, by_objective) in zip(panels, chances.items(), strict=True):
        heights = list(by_objective.values())
        bars = axes.barh(range(len(heights)), heights, color=COLOURS[: len(heights)])
        axes.bar_label(bars, [f"{height:.2f}" for height in heights], padding=3)
        axes.set_yticks(range(len(heights)), list(by_objective) if axes is panels[0] else [])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.2 * max(heights))
        axes.set_title(f"{name}: {WORLDS[name][0]}")
        axes.set_xlabel("chance of the first action")
    write_figure(figure, path)


def main() -> None:
    """Solve, print, plot."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "choose_objective.png")
    chances = first_actions()
    rich.print(table(chances))
    plot(chances, path)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
