"""Evaluating what a run left in its directory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from empo_core.config import installed
from empo_core.config.loading import load_config
from empo_core.errors import ConfigError
from empo_core.experiment import build_algorithm, build_world, seed_everything
from empo_core.plugins.registry import Registry
from empo_core.protocols import Drawable, Playable, RunContext
from empo_core.storage.arrays import write_file
from empo_core.storage.run_directory import CONFIG, labels, strict_json
from empo_core.tracker_group import TrackerGroup
from empo_learning.evaluation.animations import film
from empo_learning.evaluation.attainment import Evaluation, evaluate
from empo_learning.evaluation.episodes import Cast

EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation of a run, on disk.

    Attributes:
        run_dir: The run's directory.
        algorithm: Name of its algorithm.
        world: Short name of its world.
        evaluation: What playing showed.
        files: What was written: ``evaluation.json`` and the animations.
    """

    run_dir: Path
    algorithm: str
    world: str
    evaluation: Evaluation
    files: tuple[Path, ...]

    def summary(self) -> dict[str, Any]:
        """All of it as JSON data."""
        about = {"run_dir": str(self.run_dir), "algorithm": self.algorithm, "world": self.world}
        files = [str(path.relative_to(self.run_dir)) for path in self.files]
        return about | asdict(self.evaluation) | {"files": files}


def evaluate_run(
    run_dir: str | Path,
    *,
    episodes: int = 1000,
    gifs: int | None = None,
    seed: int = 0,
    max_steps: int | None = None,
    registry: Registry | None = None,
) -> Evaluated:
    """Play the policies that a run left, and write what that shows into its directory.

    Args:
        run_dir: The run's directory.
        episodes: Episodes per goal, at least 1.
        gifs: Animations to write; None: 3, or none where the world cannot draw itself.
        seed: Decides everything that is random.
        max_steps: Cut episodes here; None: at the horizon, or after ``MOST_STEPS`` without one.
        registry: The components its config may name; default: the installed ones.

    Raises:
        ConfigError: It is no run directory, or its algorithm or world cannot be played.
        StorageError: The run left nothing that can be loaded, or the disk refuses.
        SolveError: Its policies make no sense.
    """
    registry = registry if registry is not None else installed()
    path = Path(run_dir).resolve()
    if not (path / CONFIG).is_file():
        raise ConfigError(f"{run_dir}: is not a run directory: it has no {CONFIG}")
    config = load_config(path / CONFIG, registry=registry)
    name = config.algorithm.name
    seed_everything(seed)
    algorithm = build_algorithm(config, registry)
    if not isinstance(algorithm, Playable):
        raise ConfigError(
            f"algorithm {name!r} cannot be played: it has no method 'restore', which gives the "
            "policies of a run; see Playable in docs/reference/protocols.md"
        )
    world = build_world(config, registry)
    if world is None:
        raise ConfigError(f"{run_dir}: this run has no world to play in")
    context = RunContext(
        world=world,
        seed=config.seed,
        directory=path,
        tracker=TrackerGroup([]),
        resume=True,
        world_model=config.world_model,
    )
    cast = Cast(world, *algorithm.restore(context), max_steps)
    evaluation = evaluate(cast, episodes=episodes, seed=seed)
    directory = path / EVALUATION
    directory.mkdir(exist_ok=True)
    for old in directory.glob("episode_*.gif"):
        old.unlink()
    if gifs is None:
        gifs = 3 if isinstance(world, Drawable) else 0
    animations = film(cast, directory, episodes=gifs, seed=seed) if gifs else []
    done = Evaluated(
        run_dir=path,
        algorithm=name,
        world=labels(config)[0],
        evaluation=evaluation,
        files=(directory / "evaluation.json", *animations),
    )
    write_file(done.files[0], strict_json(done.summary()) + "\n")
    return done
