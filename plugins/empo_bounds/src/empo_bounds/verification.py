"""Verification of a certificate: all is worked out by the reference solver, and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from empo_bounds.assumptions import Assumptions, Proved, assumes_bounded_chances
from empo_bounds.certificate import (
    FILE,
    FOLDER,
    Certificate,
    Interval,
    StartBounds,
    interval,
    policies_digest,
    read_certificate,
    start_bounds,
    theory_data,
)
from empo_bounds.induction import PairBounds
from empo_bounds.least_power import prove, solved_power
from empo_bounds.policy_comparison import compare_policies
from empo_bounds.question import Question
from empo_bounds.recorded import VALUES, Contradiction, Recorded
from empo_bounds.saved_question import saved_question, saved_solution
from empo_bounds.second_opinion import ExpandedWorld, reference_bounds, vacuous_v_r
from empo_core.config import HumanPriorRef, RunConfig
from empo_core.config.files import parse_yaml, validate_document
from empo_core.errors import StorageError
from empo_core.experiment import Experiment
from empo_core.protocols import Tracker
from empo_core.runs.atomic import digest
from empo_core.runs.directory import existing_run
from empo_core.world_content import world_digest

INSIDE, OUTSIDE = 1e-11, 1e-6
"""Largest share by which a certified bound may be tighter than that of the reference, and by which
it may be looser. Certified ones are rounded outwards and the others not at all, hence looser."""
NEGLIGIBLE, HUGE = 1e-290, 1e290
"""Numbers below and beyond which under- and overflow count; but where no bound follows from the
reference, none may be certified."""
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
    assumed = Assumptions(claims.min_power, claims.never_ends_early)
    recorded = Recorded(question, arrays, assumed, claims.is_timed)
    try:
        _compare_names(run.config, question, certificate)
        _compare_digests(recorded, certificate)
        recorded.require_sense()
        compare_policies(recorded)
        numbers = _compare_bounds(recorded, certificate, tracker)
        _compare_least_power(run, question, certificate)
    except Contradiction as error:
        raise StorageError(
            f"{directory}: this certificate is not confirmed: {error}. Make a new one with: "
            f"empo certify {directory.parent}"
        ) from error
    return Verified(certificate, certificate.pairs, numbers, VALUES[0] in arrays)


def _compare_least_power(run: Experiment, question: Question, certificate: Certificate) -> None:
    """Compare the least power with what is proved, or with the run's solution."""
    claims = certificate.claims
    power, source = claims.min_power, claims.power_source
    if (power is None) != (source is None) or (claims.power_states is None) != (source != "proved"):
        raise Contradiction("it does not say where its least power comes from")
    if power is None or source == "assumed":
        return
    if source == "proved":
        proof = prove(question, lambda: True)
        right, states = proof or (0.0, None)
        _require_equal("the number of states that can be reached", claims.power_states, states)
    elif certificate.about.human_prior is not None:
        raise Contradiction("its least power is that of a solution with other humans")
    else:
        solution = saved_solution(run)
        right = (solved_power(question, solution) if solution is not None else None) or 0.0
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

    numbers, powers, world = 0, list[np.ndarray](), ExpandedWorld(recorded)
    for time, bounds in reference_bounds(recorded, world, report):
        numbers += _compare_arrays(recorded, time, bounds)
        pairs = recorded.pairs(time)
        expanded = recorded.expanded[pairs.start : pairs.stop]
        _require_power(recorded, bounds.x_h.high, pairs)
        powers.append(bounds.x_h.low[expanded])
        if time == 0:
            numbers += _compare_start(recorded, certificate, bounds)
    _compare_claims(recorded, certificate, np.concatenate(powers))
    _compare_last_round(recorded, certificate, world)
    return numbers


def _require_power(recorded: Recorded, upper: np.ndarray, pairs: range) -> None:
    """Refuse pairs in which a human has less power than there is everywhere.

    Args:
        recorded: Pairs and claims.
        upper: X_h from above in some pairs [pair human].
        pairs: These.
    """
    min_power = recorded.assumed.min_power or 0.0
    short = np.argwhere(upper < min_power * (1.0 - INSIDE))
    if len(short):
        pair, human = short[0].tolist()
        raise Contradiction(
            f"X_h of pair {pairs[pair]} is at most {upper[pair, human]:.6g}, and it says that it "
            f"is at least {min_power:.6g} everywhere"
        )


def _compare_arrays(recorded: Recorded, time: int, bounds: PairBounds) -> int:
    """Compare the bounds of all pairs of a time, where they were kept; how many there are."""
    numbers, pairs = 0, recorded.pairs(time)
    for key in VALUES if VALUES[0] in recorded.arrays else ():
        name, side = key.rsplit("_", 1)
        certified = recorded.arrays[key][pairs.start : pairs.stop]
        right = getattr(getattr(bounds, name), side)
        wrong = np.argwhere(~_agree(certified, right, is_upper=side == "high"))
        if len(wrong):
            pair = int(wrong[0, 0])
            raise Contradiction(
                f"{key} of pair {pair} at time {time} is {certified[pair]}, and {right[pair]} "
                "follows"
            )
        numbers += certified.size
    return numbers


def _agree(certified: np.ndarray, right: np.ndarray, *, is_upper: bool) -> np.ndarray:
    """True where a bound is that of the reference, or looser by what outward rounding may do."""
    unbounded = np.inf if is_upper else -np.inf
    invented = (right == unbounded) & (certified != unbounded)
    certified, right = np.clip(certified, -HUGE, HUGE), np.clip(right, -HUGE, HUGE)
    looser = certified - right if is_upper else right - certified
    size = np.abs(right)
    agree: np.ndarray
    agree = (looser >= -INSIDE * size - NEGLIGIBLE) & (looser <= OUTSIDE * size + NEGLIGIBLE)
    agree = agree & ~invented
    return agree


def _compare_start(recorded: Recorded, certificate: Certificate, bounds: PairBounds) -> int:
    """Compare the bounds at the start, which is the only pair of its time; how many there are."""
    names, certified = zip(*_intervals(certificate.start), strict=True)
    _, right = zip(*_intervals(start_bounds(recorded.question, bounds)), strict=True)
    names, certified = (*names, "vacuous V_r"), (*certified, certificate.vacuous_v_r)
    right = (*right, interval(*vacuous_v_r(recorded)))
    for side, unbounded in enumerate((-np.inf, np.inf)):
        for name, *sides in zip(names, certified, right, strict=True):
            numbers = [np.array(unbounded if it[side] is None else it[side]) for it in sides]
            if not _agree(*numbers, is_upper=side == 1):
                raise Contradiction(
                    f"{name} at the start is {sides[0][side]!r} by it, and {float(numbers[1])!r} "
                    "follows"
                )
    return 2 * len(names)


def _intervals(start: StartBounds) -> Iterator[tuple[str, Interval]]:
    """Names and intervals of everything that is bounded at the start."""
    yield "V_r", start.v_r
    yield "U_r", start.u_r
    for human in start.humans:
        yield f"X_h of {human.name}", human.x_h
        for goal in human.goals:
            yield f"V_h^e of {human.name} for {goal.name!r}", goal.v_e


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


def _compare_last_round(recorded: Recorded, certificate: Certificate, world: ExpandedWorld) -> None:
    last, start, outside = certificate.rounds[-1], certificate.start, world.outside()
    _require_equal("the number of pairs", last.pairs, int(recorded.expanded.sum()))
    _require_equal("the number of transitions", last.transitions, world.num_transitions)
    _require_equal("V_r of the last round", last.v_r, start.v_r)
    _require_equal("the widest V_h^e", last.widest_v_e, float(np.max(start.widths)))
    _require_equal("the median width of V_h^e", last.median_v_e, float(np.median(start.widths)))
    if abs(last.outside - outside) > OUTSIDE * max(outside, OUTSIDE):
        raise Contradiction(
            f"the occupancy outside is {last.outside!r} by it, and {outside!r} is right"
        )
