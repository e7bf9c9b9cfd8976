"""Verification of a certificate: everything is worked out again in plain loops, and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from empo_bounds.certificate import (
    FOLDER,
    Certificate,
    Interval,
    policies_digest,
    read_certificate,
)
from empo_bounds.plain_induction import PlainBounds, Recorded, plain_bounds
from empo_bounds.question import Question
from empo_bounds.saved_question import saved_question
from empo_core.config import HumanPriorRef
from empo_core.errors import StorageError
from empo_core.protocols import Tracker
from empo_core.storage.atomic import digest
from empo_core.storage.run_directory import existing_run
from empo_core.worlds.queries import fingerprint

TOLERANCE = 1e-6
"""Largest difference between certified and plain bounds, of numbers below 1; else relative.

Certified ones allow for probabilities that sum to 1 within 1e-9 in every step.
"""
SINGLE = 1e-5
"""Largest difference of a policy that is asked again; networks compute in single precision."""
TASK = "verification"


@dataclass(frozen=True)
class Verified:
    """A certificate that was confirmed.

    Attributes:
        certificate: What it says.
        pairs: How many pairs were worked out again.
        numbers: How many bounds were compared.
    """

    certificate: Certificate
    pairs: int
    numbers: int


def verify_run(path: str | Path, tracker: Tracker) -> Verified:
    """Work out the certificate of a run again, from its world and its policies.

    Raises:
        StorageError: There is none, or it is damaged, or something in it does not follow.
    """
    directory = existing_run(path) / FOLDER
    certificate, arrays = read_certificate(directory)
    prior = certificate.about.human_prior
    reference = None if prior is None else HumanPriorRef.model_validate(prior)
    _, _, question = saved_question(path, reference)
    theory = question.theory.model_dump(mode="json") | {"accrual": question.accrual}
    digests = (
        ("world", fingerprint(question.world), certificate.digests.world),
        ("policies", policies_digest(arrays), certificate.digests.policies),
        ("theory", digest(theory), digest(certificate.theory)),
    )
    for name, here, there in digests:
        if here != there:
            raise _contradiction(directory, f"its digest of the {name} is not that of this run")
    try:
        _compare_policies(directory, question, arrays)
        recorded = Recorded(
            question, arrays, certificate.claims.min_power, certificate.claims.never_ends_early
        )
        pairs, numbers = _compare_bounds(directory, recorded, certificate, tracker)
    except (KeyError, IndexError, ValueError) as error:
        what = f"its arrays contradict one another or the world ({type(error).__name__}: {error})"
        raise _contradiction(directory, " ".join(what.split())) from error
    return Verified(certificate, pairs, numbers)


def _compare_policies(
    directory: Path, question: Question, arrays: Mapping[str, np.ndarray]
) -> None:
    """Ask for all policies again, at the first time at which each moment was met."""
    moment, first = np.unique(arrays["pair_moment"], return_index=True)
    moment, first = moment[moment >= 0], first[moment >= 0]
    times = np.searchsorted(arrays["first_pair"], first, side="right") - 1
    horizon = question.spec.horizon
    for time in np.unique(times).tolist():
        chosen = moment[times == time]
        state, robot, *humans = arrays["moments"][chosen].T
        rows = torch.from_numpy(arrays["states"][state].copy())
        left = 1 if horizon is None else horizon - time
        asked = question.robots.probabilities(rows, torch.full((len(rows),), left))
        known = [(arrays["robot_policy"][robot], asked.double().cpu().numpy())]
        policies = question.humans.policy(rows, left).double().cpu().numpy()
        for human, number in enumerate(humans):
            own = policies[:, question.goals[human], : question.num_actions]
            known.append((arrays[f"human_policy_{human}"][number][..., : own.shape[-1]], own))
        for there, here in known:
            if there.shape != here.shape or np.abs(there - here).max(initial=0.0) > SINGLE:
                raise _contradiction(directory, f"a policy at time {time} is not that of this run")


def _compare_bounds(
    directory: Path, recorded: Recorded, certificate: Certificate, tracker: Tracker
) -> tuple[int, int]:
    def told(done: int, of: int) -> None:
        tracker.progress(TASK, done, of)

    start = recorded.question.world.initial_state().tolist()
    if recorded.row(int(recorded.arrays["pair_landing"][0]))[0].tolist() != start:
        raise _contradiction(directory, "it begins in another state than this run's world")
    pairs = numbers = 0
    for time, found in plain_bounds(recorded, told):
        pairs += sum(recorded.arrays["pair_moment"][pair] >= 0 for pair in recorded.pairs(time))
        numbers += _compare_arrays(directory, recorded, time, found)
        if time == 0:
            for certified, plain, what in _start(recorded.question, certificate, found[0]):
                _compare(directory, certified, plain, f"{what} at the start")
                numbers += 2
    if pairs != certificate.pairs:
        raise _contradiction(
            directory, f"{pairs} pairs were expanded, not {certificate.pairs} as it says"
        )
    return pairs, numbers


def _compare_arrays(
    directory: Path, recorded: Recorded, time: int, found: list[PlainBounds]
) -> int:
    """Compare the bounds of all pairs of a time, where they were kept; how many there are."""
    numbers, pairs = 0, recorded.pairs(time)
    for name in ("x_h", "lack", "loss"):
        for side, suffix in enumerate(("low", "high")):
            if f"{name}_{suffix}" not in recorded.arrays:
                continue
            certified = recorded.arrays[f"{name}_{suffix}"][pairs.start : pairs.stop]
            plain = np.array([getattr(each, name)[side] for each in found])
            wrong = ~_agree(certified, plain.reshape(certified.shape))
            if wrong.any():
                pair = int(np.argwhere(wrong)[0, 0])
                raise _contradiction(
                    directory,
                    f"{name}_{suffix} of pair {pair} at time {time} is {certified[pair]}, and "
                    f"{plain[pair]} follows",
                )
            numbers += certified.size
    return numbers


def _agree(certified: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """True where bounds are equal up to the tolerance; infinite ones have to be equal."""
    allowed = TOLERANCE * np.maximum(1.0, np.abs(np.where(np.isfinite(plain), plain, 0.0)))
    with np.errstate(invalid="ignore"):
        agree: np.ndarray = (certified == plain) | (np.abs(certified - plain) <= allowed)
    return agree


def _start(
    question: Question, certificate: Certificate, found: PlainBounds
) -> Iterator[tuple[Interval, tuple[float, float], str]]:
    """Certified intervals at the start, plain ones, and what they are of."""
    start = certificate.start
    yield start.v_r, (-found.loss[1], -found.loss[0]), "V_r"
    yield start.u_r, (-found.lack[1], -found.lack[0]), "U_r"
    for position, human in enumerate(start.humans):
        x_h = found.x_h[:, position].tolist()
        yield human.x_h, (x_h[0], x_h[1]), f"X_h of {human.name}"
        for column, goal in enumerate(human.goals, question.first_goal[position]):
            v_e = found.v_e[:, column].tolist()
            yield goal.v_e, (v_e[0], v_e[1]), f"V_h^e of {human.name} for {goal.name!r}"


def _compare(directory: Path, certified: Interval, plain: tuple[float, float], what: str) -> None:
    unbounded = (-np.inf, np.inf)
    for side in range(2):
        number = certified[side]
        value = unbounded[side] if number is None else number
        if not _agree(np.array(value), np.array(plain[side])):
            raise _contradiction(
                directory, f"{what} is {value!r} by it, and {plain[side]!r} follows"
            )


def _contradiction(directory: Path, what: str) -> StorageError:
    return StorageError(
        f"{directory}: this certificate is not confirmed: {what}. Make a new one with: "
        f"empo certify {directory.parent}"
    )
