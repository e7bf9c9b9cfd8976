"""The question that a run poses: its world, the policies it left, and its theory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from empo_bounds.question import Question
from empo_core.components import build
from empo_core.config import HumanPriorRef, RunConfig
from empo_core.config.files import load_config
from empo_core.errors import ConfigError, StorageError
from empo_core.experiment import Experiment
from empo_core.runs.directory import CONFIG, existing_run
from empo_theory.parameters import CompleteTheory, TheoryParams
from empo_theory.solved_world import SolvedWorld

log = logging.getLogger(__name__)


def saved_question(
    path: str | Path, human_prior: HumanPriorRef | None = None
) -> tuple[Experiment, Question]:
    """A run, and what is asked about it.

    Args:
        path: The run's directory.
        human_prior: How humans act; None: as the run assumed.

    Raises:
        ConfigError: if the folder is no run, or no run of robots among humans in a world.
        StorageError: if the run left nothing that can be loaded.
    """
    run = Experiment.load(path)
    refuse_failing_robots(path, run.config.algorithm.params)
    policies, world = run.policies(), run.context.world
    if world is None or not isinstance(policies, tuple):
        raise ConfigError(
            f"{path}: a certificate is about robots in a world of humans and goals, and this run "
            f"of {run.config.algorithm.name!r} has none whose policy can be asked about single "
            "states; certify a run of exact, of phase2, or of rollout in a world. In rollout, "
            "robots must learn, without memory (humans that learn can be the --human-prior of "
            "another run)"
        )
    robots, humans = policies
    if human_prior is not None:
        humans = build(human_prior, world)
    theory = theory_of(run.config)
    accrual = theory.accrual if isinstance(theory, CompleteTheory) else "discrete"
    names = getattr(run.config.algorithm.params, "counts", None)
    counts = None
    if names is not None:
        counts = tuple(h for h in world.spec.humans if world.spec.agents[h].name in names)
    return run, Question(world, robots, humans, theory, accrual, counts)


def refuse_failing_robots(path: str | Path, params: object) -> None:
    """Refuse a run whose robots may fail.

    Raises:
        ConfigError: if they may.
    """
    if getattr(getattr(params, "defunct", None), "rate", 0):
        raise ConfigError(
            f"{path}: algorithm.params.defunct.rate is set, and certificates are about robots that "
            "never fail only; certify a run without defunct.rate"
        )


def saved_solution(run: Experiment) -> SolvedWorld | None:
    """The solution that a run left; without one, or with a warning where it is damaged, None."""
    try:
        result = run.algorithm.reopen(run.context)
    except StorageError as error:  # Its policies can be played all the same.
        log.warning("what the run has solved is refused, and done without: %s", error)
        return None
    return result if isinstance(result, SolvedWorld) else None


def theory_of(config: RunConfig) -> TheoryParams:
    """The parameters of equations (4)-(9) that a run was about.

    They stand in the params of its algorithm, of another that these name, or of the run that
    these name; otherwise the defaults are meant.
    """
    theory = next(_theories(config.algorithm.params), None)
    if theory is not None:
        return theory
    other = next(_runs(config.algorithm.params), None)
    if other is None:
        return TheoryParams()
    return theory_of(load_config(existing_run(other) / CONFIG))


def _theories(params: object) -> Iterator[TheoryParams]:
    if isinstance(params, TheoryParams):
        yield params
    elif isinstance(params, BaseModel):
        for _, value in params:
            yield from _theories(value)


def _runs(params: object) -> Iterator[Path]:
    """Runs that params name."""
    if isinstance(params, BaseModel):
        for name, value in params:
            if name == "run" and isinstance(value, str | Path):
                yield Path(value)
            yield from _runs(value)
