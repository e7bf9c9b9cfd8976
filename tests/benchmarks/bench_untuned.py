"""Learning of ``phase2`` with nothing set but the value network: error at the start, and CPU time.

Run ``python tests/benchmarks/bench_untuned.py [WORLD...]``: tables and networks from three seeds in
each world, compared once, at the end, with the exact solution.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.experiment import seed_everything
from empo_phase2.algorithm import Phase2
from empo_phase2.params import Phase2Params
from empo_testing.algorithm import fresh

WORLDS = ("two_room", "trivial", "free_the_human", "key_and_door")
NETWORKS = ("lookup", "mlp")
SEEDS = range(3)


def learned(world: str, network: str, seed: int) -> tuple[float, float]:
    """Relative error of V_r at the start, and CPU seconds of learning and the comparison."""
    params = Phase2Params.model_validate(
        {
            "values": {"q_r": network, "v_h_e": network},
            "reporting": {"compare": "exact", "evaluation_interval": 0},
        }
    )
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        context = fresh(build(WorldModelRef.model_validate(f"multigrid/{world}")), Path(folder))
        context.seed = seed
        seed_everything(seed)
        gap = Phase2(params).run(context).gap
    return gap["Compare/V_r_root_rel"], time.process_time() - started


def main(worlds: list[str]) -> None:
    table = Table("world", "network", "error of V_r at the start, %", "CPU seconds")
    for world in worlds or WORLDS:
        for network in NETWORKS:
            found = [learned(world, network, seed) for seed in SEEDS]
            errors = ", ".join(f"{100 * error:.3f}" for error, _ in found)
            table.add_row(world, network, errors, ", ".join(f"{cpu:.0f}" for _, cpu in found))
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
