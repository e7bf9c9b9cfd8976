"""Evaluating what a run left in its directory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from empo_core.components import build
from empo_core.config import HumanPriorRef
from empo_core.errors import ConfigError
from empo_core.experiment import Experiment, seed_everything
from empo_core.protocols import (
    CheckpointChoice,
)
from empo_core.runs.atomic import entry_of, make_folder, strict_json, write_file
from empo_core.runs.directory import labels
from empo_learning.evaluation.animations import film
from empo_learning.evaluation.attainment import Evaluation, evaluate
from empo_learning.evaluation.episodes import EpisodeSampler
from empo_learning.evaluation.returns import ReturnEvaluation, evaluate_returns
from empo_learning.evaluation.starts import read_starts

log = logging.getLogger(__name__)

EVALUATION = "evaluation"
FILMS_IN_WORLD = 3
"""Episodes that are animated in a world."""
EPISODES_IN_WORLD, EPISODES_IN_ENVIRONMENT = 1000, 100
"""Episodes per goal, or per agent or task, where the caller does not say how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """An evaluation of a run, on disk.

    Attributes:
        run_dir: The run's directory.
        algorithm: Name of its algorithm.
        place: Short name of its world or environment.
        evaluation: What playing showed: attainment of goals in a world, or returns.
        files: What was written: ``evaluation.json`` and the animations.
        human_prior: The humans who were played instead of the run's own, if any.
        starts: The file that lists where episodes began, if not in the world's initial state.
        starts_sha256: The digest of that file.
    """

    run_dir: Path
    algorithm: str
    place: str
    evaluation: Evaluation | ReturnEvaluation
    files: tuple[Path, ...]
    human_prior: HumanPriorRef | None = None
    starts: Path | None = None
    starts_sha256: str | None = None

    def summary(self) -> dict[str, Any]:
        """All of it as JSON data."""
        where = "world" if isinstance(self.evaluation, Evaluation) else "environment"
        about: dict[str, Any] = {"run_dir": str(self.run_dir), "algorithm": self.algorithm}
        about |= {where: self.place}
        if self.human_prior is not None:
            about |= {"human_prior": self.human_prior.model_dump(mode="json")}
        if self.starts is not None:
            about |= {"starts": str(self.starts), "starts_sha256": self.starts_sha256}
        files = [str(path.relative_to(self.run_dir)) for path in self.files]
        return about | asdict(self.evaluation) | {"files": files}


def evaluate_run(
    run_dir: str | Path,
    *,
    episodes: int | None = None,
    gifs: int | None = None,
    is_filmed: bool = False,
    seed: int = 0,
    max_steps: int | None = None,
    checkpoint: CheckpointChoice = "newest",
    human_prior: HumanPriorRef | None = None,
    starts: Path | None = None,
    env: Callable[[], object] | None = None,
) -> Evaluated:
    """Play what a run has computed or learned, and write what that shows into its directory.

    Args:
        run_dir: The run's directory.
        episodes: Episodes per goal of a world, or per agent or task of an environment, at least 1;
            None: 1000, or 100.
        gifs: Animations to write, of each task and actor where there is no world; None: 3 of a
            world that can draw itself, and 1 of each that is asked for or filmed unasked.
        is_filmed: Whether animations are asked for.
        seed: Decides everything that is random.
        max_steps: Cut episodes here; None: at the horizon, or after ``MOST_STEPS`` without one.
        checkpoint: Which weights of the run.
        human_prior: How humans act; None: as the run assumed.
        starts: A file that lists where episodes begin; None: in the world's initial state.
        env: Makes an environment, where the run was given one from Python.

    Raises:
        ConfigError: if ``run_dir`` is no run directory, its algorithm or world cannot be played, or
            animations are asked for and cannot be drawn.
        StorageError: if the run left nothing that can be loaded, or the disk refuses.
        SolveError: if its policies make no sense.
        CollectError: if an environment failed.
    """
    seed_everything(seed)
    run = Experiment.load(run_dir, env=env)
    policies, path, world = run.policies(checkpoint), run.directory, run.context.world
    files = [path / EVALUATION / "evaluation.json"]
    is_asked = is_filmed or bool(gifs)
    if is_filmed and gifs == 0:
        raise ConfigError("--film asks for animations, and --gifs 0 for none: drop one of them")
    evaluation: Evaluation | ReturnEvaluation
    if isinstance(policies, tuple):
        if world is None:
            raise ConfigError(f"{run_dir}: this run has no world to play in")
        robots, humans = policies
        if human_prior is not None:
            humans = build(human_prior, world)
        begins = None if starts is None else read_starts(starts, world, robots, humans)
        sampler = EpisodeSampler(world, robots, humans, max_steps, begins)
        if is_filmed and gifs is None:
            gifs = FILMS_IN_WORLD
        evaluation, animations = _in_world(sampler, path, episodes, gifs, seed)
        files += animations
    elif refused := [
        option
        for option, is_set in (
            ("--human-prior", human_prior),
            ("--starts", starts),
        )
        if is_set
    ]:  # fmt: skip
        raise ConfigError(
            f"{path}: {refused[0]} is for episodes in a world of human goals; leave out "
            f"{refused[0]}"
        )
    elif is_asked and not policies.films:
        raise ConfigError(
            f"{path}: {type(policies).__name__} draws no episodes; leave out --film and --gifs"
        )
    else:
        num_episodes = EPISODES_IN_ENVIRONMENT if episodes is None else episodes
        evaluation = evaluate_returns(
            policies, episodes=num_episodes, seed=seed, max_steps=max_steps
        )
        directory, number = _fresh(path), gifs
        if number is None:
            number = 1 if is_filmed else policies.unasked_films
        try:
            if number and policies.films:
                files += policies.film(directory, episodes=number, seed=seed, max_steps=max_steps)
        except ConfigError as error:
            if is_asked:
                raise
            log.warning("no animation was written: %s", error)
    done = Evaluated(
        run_dir=path,
        algorithm=run.config.algorithm.name,
        place=labels(run.config, env)[-1 if world is None else 0],
        evaluation=evaluation,
        files=tuple(files),
        human_prior=human_prior,
        starts=starts,
        starts_sha256=None if starts is None else entry_of(starts.resolve()).sha256,
    )
    write_file(done.files[0], strict_json(done.summary()) + "\n")
    return done


def _in_world(
    sampler: EpisodeSampler, path: Path, episodes: int | None, gifs: int | None, seed: int
) -> tuple[Evaluation, list[Path]]:
    """Attainment of goals, and the animations that were written."""
    num_episodes = EPISODES_IN_WORLD if episodes is None else episodes
    evaluation = evaluate(sampler, episodes=num_episodes, seed=seed)
    if gifs is None:
        is_drawn = sampler.world.render(sampler.begins.states[0]) is not None
        gifs = FILMS_IN_WORLD if is_drawn else 0
    directory = _fresh(path)
    return evaluation, film(sampler, directory, episodes=gifs, seed=seed) if gifs else []


def _fresh(path: Path) -> Path:
    """The folder of evaluations of a run, without older animations."""
    directory = path / EVALUATION
    make_folder(directory)
    for old in directory.glob("*.gif"):
        old.unlink()
    return directory
