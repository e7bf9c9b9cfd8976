"""Who holds the power on the layouts of Disempower-Grid, at the start (metric 4 of its protocol).

Run ``python examples/benchmarks/disempower_power.py [--layouts NAME ...] [--humans NAME ...]``. It
solves all robots of the settings, and prints for user and bystander how likely each is to attain
its true goal (V_h, discounted), its power in bits, what is left of that without the robot (alone),
and against a robot that does its worst (domination), where a bit of straying costs it a tenth of a
goal's certainty, or nothing. ``move_any_freeze`` takes a minute, ``move_any`` much longer.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path[:0] = [str(Path(__file__).parent)]

from disempower_course import HUMANS, solved  # noqa: E402
from disempower_settings import SETTINGS, Settings  # noqa: E402
from kept_runs import file_digest  # noqa: E402

from empo_benchmarks.disempower.environment import true_goals  # noqa: E402
from empo_benchmarks.disempower.params import DisempowerParams  # noqa: E402
from empo_benchmarks.disempower.world import load_world  # noqa: E402
from empo_core.config.files import read_yaml, validate_document  # noqa: E402
from empo_exact.diagnostics.diagnose import diagnose  # noqa: E402
from empo_exact.result import ExactResult  # noqa: E402


def powers(result: ExactResult, goals: list[int]) -> list[list[float | None]]:
    """V_h for its true goal, and I_h, alone and dominated, of user and bystander."""
    start = result.at_start()
    capability = np.asarray(start.V_e).reshape(HUMANS, -1)
    rows: list[list[float | None]] = []
    found = diagnose(result, ["alone", "domination"])
    for human, measured in enumerate(found.humans):
        alone = None if measured.alone is None else measured.alone.bits
        threats = [threat.bits for threat in measured.threats if threat.adversary == "robots"]
        rows.append([float(capability[human, goals[human]]), measured.bits, alone, *threats])
    return rows


def shown(value: float | None) -> str:
    """As the table has it."""
    return "none" if value is None else f"{value:.3f}"


def main() -> None:
    """Solve, measure, print."""
    settings = validate_document(Settings, read_yaml(SETTINGS))
    parser = argparse.ArgumentParser(description=__doc__)
    names = list(settings.canonical)
    parser.add_argument("--layouts", nargs="+", choices=names, default=["move_any_freeze"])
    parser.add_argument("--humans", nargs="+", choices=list(settings.humans), default=["even"])
    given = parser.parse_args()
    table = Table(title="Power at the start", caption=f"{SETTINGS.name} {file_digest(SETTINGS)}")
    for column in ("layout", "humans", "robot", "human"):
        table.add_column(column, no_wrap=True)
    for column in ("V_h, true goal", "I_h", "alone", "dominated, 0.1", "dominated, 0"):
        table.add_column(column, justify="right")
    for layout in given.layouts:
        steps = settings.canonical[layout].steps
        world = load_world(DisempowerParams(layout=layout, max_steps=steps))
        goals = true_goals(world.board)
        for humans in given.humans:
            for name, robot in settings.solved_robots().items():
                result = solved(world, settings, humans, robot)
                for human, row in enumerate(powers(result, goals)):
                    agent = world.spec.agents[human].name
                    table.add_row(layout, humans, name, agent, *map(shown, row))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
