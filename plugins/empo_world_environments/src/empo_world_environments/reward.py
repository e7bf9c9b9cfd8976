"""The robots' reward from another algorithm's U_r."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.components import build
from empo_core.config import AlgorithmRef, installed
from empo_core.errors import ConfigError
from empo_core.experiment import Experiment
from empo_core.plugins.registry import Registry
from empo_core.protocols import Algorithm, IntrinsicReward, RunContext, WorldModel
from empo_core.runs.atomic import read_json, strict_json, write_file
from empo_core.runs.directory import (
    RESULTS,
    SUMMARY,
    existing_run,
)
from empo_core.runs.files import refuse_gone
from empo_core.runs.status import status_of
from empo_core.tracker_group import TrackerGroup
from empo_core.world_content import difference, identity
from empo_learning.state_cache import StateCache
from empo_world_environments.params import PowerReward

WHERE = "algorithm.params.environment.reward"
DONE = "done"
"""A file that says that an algorithm has finished in its directory, and what it warned of."""


class Power:
    """Scaled intrinsic reward U_r of successor states, with a cache."""

    def __init__(self, source: IntrinsicReward, world: WorldModel, scale: float = 1.0) -> None:
        self._scale = scale
        self._source = StateCache(source, world.spec.state_words)

    def __call__(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, " state"]:
        """The reward of arriving in states from which the episode goes on."""
        return (self._scale * self._source(states, steps_left)).to(torch.float32)


def power_reward(
    params: PowerReward,
    world: WorldModel,
    directory: Path,
    *,
    seed: int = 0,
    registry: Registry | None = None,
) -> Power:
    """The reward that a config asks for.

    Args:
        params: What it asks for.
        world: The world of the run.
        directory: Where an algorithm that has to run first leaves its results; what it left
            there before is used again.
        seed: Seeds that algorithm.
        registry: Where names are looked up; default: the installed plugins.

    Raises:
        ConfigError: if there is no such run, it is about another world, has not finished, or its
            algorithm knows no U_r.
        StorageError: if its results cannot be loaded.
        SolveError: if the world cannot be solved.
    """
    registry = registry if registry is not None else installed()
    if params.run is not None:
        source = _of_run(params.run, world, registry)
    else:
        assert params.algorithm is not None
        source = _of_algorithm(params.algorithm, world, directory, seed, registry)
    return Power(source, world, params.scale)


def warnings_of(params: PowerReward, directory: Path) -> list[str]:
    """What the source of U_r warned of, which the robots are paid by; as for ``power_reward``."""
    if params.run is not None:
        where, file = str(params.run), existing_run(params.run) / RESULTS / SUMMARY
    else:
        assert params.algorithm is not None
        where, file = f"algorithm {params.algorithm.name!r}", directory / DONE
    summary = read_json(file) if file.is_file() and file.stat().st_size else None
    texts = summary.get("warnings") if isinstance(summary, dict) else None
    warnings = [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
    return [f"U_r, by which robots are paid, comes from {where}: {text}" for text in warnings]


def _of_run(path: Path, world: WorldModel, registry: Registry) -> IntrinsicReward:
    """U_r as a finished run has it."""
    where = f"{WHERE}.run: {path}"
    try:
        path = existing_run(path)
    except ConfigError as error:
        raise ConfigError(f"{WHERE}.run: {error}") from error
    status = status_of(path).status
    # Of a damaged status the summary, which is written last, says that the run has finished.
    if status != "finished" and not (status is None and (path / RESULTS / SUMMARY).is_file()):
        raise ConfigError(f"{where} has not finished ({status}); go on with: empo resume {path}")
    run = Experiment.load(path, registry=registry)
    config, run_world = run.config, run.context.world
    if run_world is None:
        raise ConfigError(f"{where} has no world")
    differs = difference(identity(run_world), identity(world))
    if differs is not None:
        raise ConfigError(
            f"{where} is about another world than this {world.spec.name!r}: {differs}. Give a "
            "run on this world, or let 'algorithm' solve it"
        )
    algorithm = _empowering(config.algorithm, registry, f"{where} comes from algorithm")
    return algorithm.intrinsic_reward(_context(world, path, config.seed))


def _of_algorithm(
    reference: AlgorithmRef, world: WorldModel, directory: Path, seed: int, registry: Registry
) -> IntrinsicReward:
    """U_r as an algorithm finds it out, unless it did so before."""
    algorithm = _empowering(reference, registry, f"{WHERE}.algorithm:")
    done = directory / DONE
    if not done.is_file():
        # An earlier attempt of the same run may have left something to go on from.
        resume = directory.is_dir()
        refuse_gone(directory)
        directory.mkdir(parents=True, exist_ok=True)
        result = algorithm.run(_context(world, directory, seed, resume))
        result.save(directory / RESULTS)
        write_file(done, strict_json({"warnings": result.summary().get("warnings")}) + "\n")
    return algorithm.intrinsic_reward(_context(world, directory, seed))


def _context(world: WorldModel, directory: Path, seed: int, resume: bool = True) -> RunContext:
    return RunContext(
        world=world, seed=seed, directory=directory, tracker=TrackerGroup([]), resume=resume
    )


def _empowering(reference: AlgorithmRef, registry: Registry, where: str) -> Algorithm:
    """The algorithm, which must know U_r.

    Raises:
        ConfigError: if the algorithm does not know U_r.
    """
    algorithm: Algorithm = build(reference, registry=registry)
    if not algorithm.has_intrinsic_reward:
        raise ConfigError(
            f"{where} {reference.name!r}, which knows no U_r: its has_intrinsic_reward is False "
            "(see Algorithm in docs/reference/protocols/algorithm.md); take another, e.g. exact"
        )
    return algorithm
