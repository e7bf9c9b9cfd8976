"""Files and functions of ours that run within one update of each learner.

``python tests/quality/update_walk.py [--verbose]`` runs each learner for a moment and prints how
many files, functions and packages a reader of its last update walks through; with ``--verbose`` it
names them. A function counts once however often it is called. What torch, numpy and compiled loops
do inside is not counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.table import Table

from empo_core.config.files import load_config
from empo_core.experiment import Experiment

EXAMPLES = Path(__file__).parents[2] / "examples"
PARAMS = "algorithm.params."
REPORTING = f"{PARAMS}reporting."


@dataclass(frozen=True)
class Walk:
    """An update, and a short run that reaches it.

    Attributes:
        example: The config, in the folder of examples.
        package: The package of the function that is one update.
        function: The qualified name of that function.
        overrides: Of the example, so that it ends soon.
    """

    example: str
    package: str
    function: str
    overrides: tuple[str, ...]


ROLLOUT = (f"{PARAMS}total_steps=4096", f"{PARAMS}reporting={{evaluation_episodes: 0}}")
PHASE2 = (
    f"{PARAMS}total_steps=60",
    f"{PARAMS}warm_up={{v_h_e: 2, q_r: 2, ramp: 2}}",
    f"{PARAMS}inspector=false",
    f"{REPORTING}compare=null",
    f"{REPORTING}evaluation_interval=0",
)
LATENT = (
    f"{PARAMS}total_steps=240",
    f"{PARAMS}collection.seed_updates=2",
    f"{PARAMS}reporting={{evaluation_episodes: 0}}",
)
WALKS = {
    "rollout": Walk(
        "ppo_cartpole.yaml",
        "empo_rollout",
        "Updater.update",
        (*ROLLOUT, f"{PARAMS}update.gradient=autograd"),
    ),
    "rollout, closed form": Walk("ppo_cartpole.yaml", "empo_rollout", "Updater.update", ROLLOUT),
    "phase2, tables": Walk("learn_trivial.yaml", "empo_phase2", "Learner.train", PHASE2),
    "phase2, mlp": Walk(
        "learn_trivial.yaml",
        "empo_phase2",
        "Learner.train",
        (*PHASE2, f"{PARAMS}values={{q_r: mlp, v_h_e: mlp}}"),
    ),
    "latent, awr": Walk("latent_pendulum.yaml", "empo_latent", "Updater.update", LATENT),
    "latent, svg": Walk(
        "latent_pendulum.yaml",
        "empo_latent",
        "Updater.update",
        (*LATENT, f"{PARAMS}policy_loss=svg"),
    ),
}


@dataclass
class Recorder:
    """A profiler that keeps the functions called within the last call of one function."""

    package: str
    function: str
    functions: set[tuple[str, str]] = field(default_factory=set)
    update: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call, or the end of the update."""
        if event == "return" and frame is self.update:
            self.update = None
        if event != "call":
            return
        code = frame.f_code
        if code.co_qualname == self.function and f"/{self.package}/" in code.co_filename:
            self.update, self.functions = frame, set()
        parts = Path(code.co_filename).parts
        packages = [part for part in parts if part.startswith("empo_")]
        if self.update is not None and packages and not code.co_name.startswith("<"):
            place = "/".join(parts[len(parts) - parts[::-1].index(packages[-1]) - 1 :])
            self.functions.add((place, code.co_qualname))


def functions_of(walk: Walk) -> set[tuple[str, str]]:
    """File and name of each function within the last update of a run.

    Raises:
        RuntimeError: if the run has no such update.
    """
    recorder = Recorder(walk.package, walk.function)
    with tempfile.TemporaryDirectory() as folder:
        places = (f"runs={folder}", "trackers=[]")
        config = load_config(EXAMPLES / walk.example, [*walk.overrides, *places])
        sys.setprofile(recorder)
        try:
            Experiment.start(config)
        finally:
            sys.setprofile(None)
    if not recorder.functions:
        raise RuntimeError(f"{walk.example} never called {walk.function} of {walk.package}")
    return recorder.functions


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--verbose", action="store_true", help="name files and functions")
    verbose, console = parser.parse_args().verbose, Console(width=100)
    table = Table("one update of", "files", "functions", "packages")
    for name, walk in WALKS.items():
        functions = functions_of(walk)
        by_file: dict[str, list[str]] = defaultdict(list)
        for file, function in sorted(functions):
            by_file[file].append(function)
        packages = {file.split("/")[0] for file in by_file}
        table.add_row(name, *(str(len(part)) for part in (by_file, functions, packages)))
        if verbose:
            console.print(f"\n{name}", style="bold")
            for file, names in by_file.items():
                console.print(f"  {file}: {', '.join(names)}", highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
