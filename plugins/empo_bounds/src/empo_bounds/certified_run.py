"""From a run's directory to a certificate in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from empo_bounds import report
from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import (
    FOLDER,
    PICTURE,
    About,
    Certificate,
    require_room,
    write_certificate,
)
from empo_bounds.effort import Effort
from empo_bounds.least_power import solved_power
from empo_bounds.occupancy import KnownOccupancy
from empo_bounds.question import Question
from empo_bounds.rounds import Certification, certify
from empo_bounds.saved_question import saved_question, saved_solution
from empo_core.best_effort import best_effort
from empo_core.config import HumanPriorRef, installed
from empo_core.errors import SolveError
from empo_core.experiment import seed_everything
from empo_core.protocols import Tracker
from empo_core.runs.directory import resolved
from empo_core.runs.environment import environment
from empo_core.threads import torch_threads
from empo_pictures.figures import write_figure


@dataclass(frozen=True)
class Certified:
    """A certificate on disk.

    Attributes:
        certificate: What it says.
        directory: Its folder.
    """

    certificate: Certificate
    directory: Path


def certify_run(
    path: str | Path,
    assumed: Assumptions,
    effort: Effort,
    tracker: Tracker,
    human_prior: HumanPriorRef | None = None,
) -> Certified:
    """Certify the policy of a run, and write the certificate into the run's directory.

    Args:
        path: The run's directory.
        assumed: Claims about what is not expanded.
        effort: When to stop.
        tracker: Is told how far it is.
        human_prior: How humans act; None: as the run assumed.

    Raises:
        ConfigError: if the folder is no run of robots among humans in a world.
        StorageError: if the run left nothing that can be loaded, or the disk refuses.
        CertificateError: if a policy makes no sense in the world, an assumption is wrong, or there
            is no room for a single step.
    """
    run, question = saved_question(path, human_prior)
    config = run.config
    seed_everything(config.seed)
    # With other humans, nothing of a solution is right.
    solution = saved_solution(run) if human_prior is None else None
    horizon = question.spec.horizon
    occupancy = None
    if solution is not None and horizon is not None and solution.occupancy() is not None:
        occupancy = KnownOccupancy(solution, horizon)

    def min_power() -> float | None:
        return None if solution is None else solved_power(question, solution)

    directory = run.directory / FOLDER
    require_room(directory)
    tracker.start(run.directory, resolved(config))
    try:
        with torch_threads(1):
            outcome = _certified(question, assumed, effort, tracker, occupancy, min_power)
    except BaseException:
        tracker.finish("failed")
        raise
    tracker.finish("finished")
    about = About(
        algorithm=config.algorithm.name,
        world=question.spec.name,
        human_prior=None if human_prior is None else human_prior.model_dump(mode="json"),
        versions=environment(config, installed()),  # type: ignore[arg-type]
    )
    certificate = write_certificate(directory, outcome, effort, about)
    right = occupancy.right if occupancy is not None else None
    with best_effort(f"drawing {PICTURE}"):
        write_figure(report.picture(certificate, right), directory / PICTURE)
    return Certified(certificate, directory)


class CertificateError(SolveError):
    """A policy makes no sense in the world, an assumption is wrong, or there is no room."""

    page = "how-to/certify_a_policy.md"


def _certified(
    question: Question,
    assumed: Assumptions,
    effort: Effort,
    tracker: Tracker,
    occupancy: KnownOccupancy | None,
    min_power: Callable[[], float | None],
) -> Certification:
    """As ``certify``, with errors that point to the page on certificates."""
    try:
        return certify(question, assumed, effort, tracker, occupancy, min_power)
    except SolveError as error:
        raise CertificateError(str(error)) from error
