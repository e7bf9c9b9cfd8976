"""Verification of a certificate: everything is worked out again in plain loops, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from empo_bounds.assumptions import Proved, assumes_bounded_chances
from empo_bounds.certificate import (
    FILE,
    FOLDER,
    Certificate,
    Claims,
    Interval,
    StartBounds,
    policies_digest,
    read_certificate,
    theory_data,
)
from empo_bounds.least_power import solved_power
from empo_bounds.plain_induction import PlainBounds, Summary, plain_bounds, vacuous_bounds
from empo_bounds.plain_power import plain_least_power
from empo_bounds.policy_comparison import compare_policies
from empo_bounds.question import Question
from empo_bounds.recorded import VALUES, Contradiction, Recorded
from empo_bounds.saved_question import saved_question, saved_solution
from empo_core.config import HumanPriorRef, RunConfig
from empo_core.config.files import parse_yaml, validate_document
from empo_core.errors import StorageError
from empo_core.protocols import Tracker
from empo_core.runs.atomic import digest
from empo_core.runs.directory import existing_run
from empo_core.world_content import world_digest
from empo_theory.solved_world import SolvedWorld

INSIDE, OUTSIDE = 1e-11, 1e-6
"""Largest share by which a certified bound may be tighter than the plain one, and by which it may
be looser. Certified ones are rounded outwards and plain ones not at all, hence looser."""
NEGLIGIBLE, HUGE = 1e-290, 1e290
"""Numbers below and beyond which under- and overflow count; but where no bound follows from the
plain induction, none may be certified."""
NOT_CHECKED = (
    "earlier rounds",
    "seconds, and which occupancy rounds asked for",
    "limits, and which of them ended the expansion",
    "versions of software",
)
"""Entries of a certificate that cannot be worked out again."""
TASK = "verification"


@dataclass(frozen=True)
class Verified:
    """A certificate that was confirmed.

    Attributes:
        certificate: What it says.
        pairs: How many pairs were worked out again.
        numbers: How many bounds were compared.
        has_values: Whether bounds of all pairs were kept, and compared; else those at the start.
    """

    certificate: Certificate
    pairs: int
    numbers: int
    has_values: bool


def verify_run(path: str | Path, tracker: Tracker) -> Verified:
    """Work out the certificate of a run again, from its world and its policies.

    Raises:
        ConfigError: if the humans that it names are not known here.
        StorageError: if there is none, or it is damaged, or something in it does not follow.
    """
    directory = existing_run(path) / FOLDER
    certificate, arrays = read_certificate(directory)
    run, question = saved_question(path, _prior(directory, certificate))
    claims = certificate.claims
    recorded = Recorded(
        question, arrays, claims.min_power, claims.never_ends_early, claims.is_timed
    )
    try:
        _compare_names(run.config, question, certificate)
        _compare_digests(recorded, certificate)
        recorded.require_sense()
        compare_policies(recorded)
        numbers = _compare_bounds(recorded, certificate, tracker)
        if claims.power_source == "run" and certificate.about.human_prior is not None:
            raise Contradiction("its least power is that of a solution with other humans")
        _compare_least_power(question, claims, lambda: saved_solution(run))
    except Contradiction as error:
        raise StorageError(
            f"{directory}: this certificate is not confirmed: {error}. Make a new one with: "
            f"empo certify {directory.parent}"
        ) from error
    return Verified(certificate, certificate.pairs, numbers, VALUES[0] in arrays)


def _compare_least_power(
    question: Question, claims: Claims, solution: Callable[[], SolvedWorld | None]
) -> None:
    """Compare the least power with what is proved, or with the run's solution."""
    power, source = claims.min_power, claims.power_source
    if (power is None) != (source is None) or (claims.power_states is None) != (source != "proved"):
        raise Contradiction("it does not say where its least power comes from")
    if power is None or source == "assumed":
        return
    if source == "proved":
        right, states = plain_least_power(question)
        _require_equal("the number of states that can be reached", claims.power_states, states)
    else:
        run_solution = solution()
        right = (solved_power(question, run_solution) if run_solution is not None else None) or 0.0
    if not _agree(np.array(power), np.array(right), is_upper=False):
        raise Contradiction(
            f"its least power is {power!r} ({source}), and {right!r} is all that follows"
        )


def _prior(directory: Path, certificate: Certificate) -> HumanPriorRef | None:
    prior = certificate.about.human_prior
    if prior is None:
        return None
    document = parse_yaml(json.dumps(prior), name=f"{directory / FILE}: about.human_prior")
    return validate_document(HumanPriorRef, document)


def _compare_names(config: RunConfig, question: Question, certificate: Certificate) -> None:
    """Compare what a certificate is about, and the names and numbers of humans and goals."""
    about, spec = certificate.about, question.spec
    _require_equal("the algorithm", about.algorithm, config.algorithm.name)
    _require_equal("the world", about.world, spec.name)
    humans = certificate.start.humans
    _require_equal("the number of humans", len(humans), len(spec.humans))
    for human, agent, goals in zip(humans, spec.humans, question.goals, strict=True):
        _require_equal("the name of a human", human.name, spec.agents[agent].name)
        names = [goal.name for goal in human.goals]
        _require_equal(f"the goals of {human.name}", names, [spec.goals[g].name for g in goals])


def _compare_digests(recorded: Recorded, certificate: Certificate) -> None:
    digests, question = certificate.digests, recorded.question
    theory = digest(theory_data(question))
    _require_equal("its digest of the world", digests.world, world_digest(question.world))
    _require_equal("its digest of the policies", digests.policies, policies_digest(recorded.arrays))
    _require_equal("its digest of the theory", digest(certificate.theory), theory)


def _require_equal(quantity: str, certified: object, right: object) -> None:
    if certified != right:
        raise Contradiction(f"{quantity} is {certified!r} by it, and {right!r} is right")


def _compare_bounds(recorded: Recorded, certificate: Certificate, tracker: Tracker) -> int:
    """Compare everything that follows from pairs and policies; how many bounds there are."""

    def report(done: int, of: int) -> None:
        tracker.progress(TASK, done, of)

    numbers, summary, powers = 0, Summary(), []
    for time, bounds in plain_bounds(recorded, report, summary):
        numbers += _compare_arrays(recorded, time, bounds)
        expanded = recorded.expanded[recorded.pairs(time).start : recorded.pairs(time).stop]
        powers += [
            pair_bounds.x_h[0] for pair_bounds, is_so in zip(bounds, expanded, strict=True) if is_so
        ]
        if time == 0:
            numbers += _compare_start(recorded, certificate, bounds[0])
    humans = len(recorded.question.spec.humans)
    _compare_claims(recorded, certificate, np.array(powers).reshape(-1, humans))
    _compare_last_round(recorded, certificate, summary)
    return numbers


def _compare_arrays(recorded: Recorded, time: int, pair_bounds: list[PlainBounds]) -> int:
    """Compare the bounds of all pairs of a time, where they were kept; how many there are."""
    numbers, pairs = 0, recorded.pairs(time)
    for key in VALUES if VALUES[0] in recorded.arrays else ():
        name, side = key.rsplit("_", 1)
        certified = recorded.arrays[key][pairs.start : pairs.stop]
        plain = np.array([getattr(bounds, name)[int(side == "high")] for bounds in pair_bounds])
        wrong = ~_agree(certified, plain.reshape(certified.shape), is_upper=side == "high")
        if wrong.any():
            pair = int(np.argwhere(wrong)[0, 0])
            raise Contradiction(
                f"{key} of pair {pair} at time {time} is {certified[pair]}, and {plain[pair]} "
                "follows"
            )
        numbers += certified.size
    return numbers


def _agree(certified: np.ndarray, plain: np.ndarray, *, is_upper: bool) -> np.ndarray:
    """True where a bound is the plain one, or looser by what outward rounding may do."""
    unbounded = np.inf if is_upper else -np.inf
    invented = (plain == unbounded) & (certified != unbounded)
    certified, plain = np.clip(certified, -HUGE, HUGE), np.clip(plain, -HUGE, HUGE)
    looser = certified - plain if is_upper else plain - certified
    size = np.abs(plain)
    agree: np.ndarray
    agree = (looser >= -INSIDE * size - NEGLIGIBLE) & (looser <= OUTSIDE * size + NEGLIGIBLE)
    agree = agree & ~invented
    return agree


def _compare_start(recorded: Recorded, certificate: Certificate, start_bounds: PlainBounds) -> int:
    bounds = list(_start(recorded.question, certificate.start, start_bounds))
    vacuous = vacuous_bounds(recorded).loss
    bounds.append((certificate.vacuous_v_r, (-vacuous[1], -vacuous[0]), "vacuous V_r"))
    for certified, plain, quantity in bounds:
        for side, unbounded in enumerate((-np.inf, np.inf)):
            number = certified[side]
            value = np.array(unbounded if number is None else number)
            if not _agree(value, np.array(plain[side]), is_upper=side == 1):
                raise Contradiction(
                    f"{quantity} at the start is {number!r} by it, and {float(plain[side])!r} "
                    "follows"
                )
    return 2 * len(bounds)


def _start(
    question: Question, start: StartBounds, bounds: PlainBounds
) -> Iterator[tuple[Interval, tuple[float, float], str]]:
    """Certified intervals at the start, plain ones, and what they are of."""
    yield start.v_r, (-bounds.loss[1], -bounds.loss[0]), "V_r"
    yield start.u_r, (-bounds.lack[1], -bounds.lack[0]), "U_r"
    for position, human in enumerate(start.humans):
        x_h = bounds.x_h[:, position].tolist()
        yield human.x_h, (x_h[0], x_h[1]), f"X_h of {human.name}"
        for column, goal in enumerate(human.goals, question.first_goal[position]):
            v_e = bounds.v_e[:, column].tolist()
            yield goal.v_e, (v_e[0], v_e[1]), f"V_h^e of {human.name} for {goal.name!r}"


def _compare_claims(recorded: Recorded, certificate: Certificate, powers: np.ndarray) -> None:
    """Compare claims, and in how many pairs they are proved.

    Args:
        recorded: Pairs and policies.
        certificate: What it says.
        powers: X_h from below in the pairs that were expanded [pair human].
    """
    claims, expanded = certificate.claims, recorded.expanded
    bounded = assumes_bounded_chances(recorded.question, is_timed=recorded.is_timed)
    _require_equal("whether chances are assumed", claims.has_bounded_chances, bounded)
    open_pairs = int((recorded.goes_on & ~expanded).sum())
    _require_equal("the number of open pairs", claims.open_pairs, open_pairs)
    min_power, claimed = claims.min_power, (claims.proved_pairs, claims.nearly_proved_pairs)
    if min_power is None:
        _require_equal("pairs with a proved power", claimed, (None, None))
    elif None in claimed:
        raise Contradiction("it does not say in how many pairs the least power is proved")
    elif VALUES[0] in recorded.arrays:
        proved = Proved.of(recorded.arrays["x_h_low"][expanded], min_power)
        _require_equal("pairs with a proved power", claimed, tuple(proved))
    else:
        possible = Proved.of(powers, min_power * (1.0 - INSIDE))
        total = possible.exactly + possible.nearly
        if not 0 <= claimed[0] <= possible.exactly or not 0 <= claimed[1] <= total - claimed[0]:  # type: ignore[operator]
            raise Contradiction(
                f"the least power is proved in {claimed[0]} and {claimed[1]} more pairs by "
                f"it, and in {possible.exactly} and {possible.nearly} more at most"
            )


def _compare_last_round(recorded: Recorded, certificate: Certificate, summary: Summary) -> None:
    last, start = certificate.rounds[-1], certificate.start
    _require_equal("the number of pairs", last.pairs, int(recorded.expanded.sum()))
    _require_equal("the number of transitions", last.transitions, summary.transitions)
    _require_equal("V_r of the last round", last.v_r, start.v_r)
    _require_equal("the widest V_h^e", last.widest_v_e, float(np.max(start.widths)))
    _require_equal("the median width of V_h^e", last.median_v_e, float(np.median(start.widths)))
    if abs(last.outside - summary.outside) > OUTSIDE * max(summary.outside, OUTSIDE):
        raise Contradiction(
            f"the occupancy outside is {last.outside!r} by it, and {summary.outside!r} is right"
        )
