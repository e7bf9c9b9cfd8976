"""Certificates as data: what was found, what was assumed, and digests of what it is about."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, JsonValue

from empo_bounds.assumptions import PowerSource, assumes_bounded_chances
from empo_bounds.effort import Effort
from empo_bounds.induction import PairBounds
from empo_bounds.question import Question
from empo_bounds.round_off import Bounds
from empo_bounds.rounds import Certification, Round
from empo_core.errors import StorageError
from empo_core.runs.atomic import (
    MANIFEST,
    StrictModel,
    make_folder,
    read_sealed,
    refused,
    sealed_json,
    write_file,
)
from empo_core.world_content import world_digest
from empo_theory.parameters import TheoryParams
from empo_worlds.arrays import load_arrays, save_arrays

FOLDER, FILE, ARRAYS, PICTURE = "certificate", "certificate.json", "arrays", "width.png"
FORMAT, VERSION = "empo-certificate", 3
PARAMETERS = set(TheoryParams.model_fields) - {"beta_r", "counting", "rho", "early_end"}
"""Parameters that the values of given policies depend on; a question has the last three as usual.
"""
ROUNDED = 1e-15
"""Share of a logarithm that it may be off."""
SMALL_BYTES = 100_000_000
"""Values of all pairs are kept where they take at most this."""

Interval = Annotated[list[float | None], Field(min_length=2, max_length=2)]
"""From below and from above; None where there is no bound."""


class GoalBounds(StrictModel):
    """Interval of V_h^e of one goal at the start."""

    name: str
    v_e: Interval


class HumanBounds(StrictModel):
    """Intervals of one human at the start."""

    name: str
    x_h: Interval
    goals: list[GoalBounds]


class StartBounds(StrictModel):
    """Intervals at the start."""

    v_r: Interval
    u_r: Interval
    humans: list[HumanBounds]

    @property
    def widths(self) -> list[float]:
        """Width of V_h^e of every goal."""
        intervals = [goal.v_e for human in self.humans for goal in human.goals]
        return [(high or 0.0) - (low or 0.0) for low, high in intervals]


class Bits(NamedTuple):
    """Intervals of powers in bits at the start.

    Attributes:
        individual: I_h of each human.
        aggregate: P.
        long_term: L.
    """

    individual: list[Interval]
    aggregate: Interval
    long_term: Interval

    def data(self, certificate: Certificate) -> dict[str, JsonValue]:
        """As JSON data."""
        names = [human.name for human in certificate.start.humans]
        return {
            "I_h": dict(zip(names, map(list, self.individual), strict=True)),
            "P": list(self.aggregate),
            "L": list(self.long_term),
        }


class RoundRecord(StrictModel):
    """State of affairs after a round of expansion."""

    occupancy: float
    pairs: int
    transitions: int
    outside: float
    seconds: float
    v_r: Interval
    widest_v_e: float
    median_v_e: float


class Claims(StrictModel):
    """Assumptions about pairs that were not expanded, and what is known of them."""

    min_power: float | None = Field(ge=0)
    power_source: PowerSource | None = Field(
        description="Whether that is assumed, proved, or the least X_h of the run's own solution."
    )
    power_states: int | None = Field(
        description="In how many states it is proved, which are all that can be reached."
    )
    never_ends_early: bool
    is_timed: bool = Field(
        description="False: every step lasts 1, as those of all expanded pairs do."
    )
    has_bounded_chances: bool = Field(
        description="True: chances are at most 1 although probabilities sum to 1 up to rounding."
    )
    open_pairs: int = Field(description="Pairs that were met and not expanded.")
    proved_pairs: int | None = Field(description="Expanded pairs with the least power.")
    nearly_proved_pairs: int | None = Field(description="More of them, but for rounding.")


class Limits(StrictModel):
    """Limits that were set, and which one was reached."""

    occupancy: float
    minutes: float
    memory_gb: float
    ended: str


class Digests(StrictModel):
    """Digests (sha256) of everything that a certificate binds to."""

    world: str
    policies: str
    arrays: str


class About(StrictModel):
    """The run, and the software that made a certificate of it."""

    algorithm: str
    world: str
    human_prior: dict[str, JsonValue] | None = Field(
        description="The humans where they are not those that the run assumed."
    )
    versions: dict[str, JsonValue]


class Certificate(StrictModel):
    """A certificate, as ``certificate.json`` has it."""

    about: About
    theory: dict[str, JsonValue]
    claims: Claims
    limits: Limits
    vacuous_v_r: Interval = Field(description="V_r before anything is expanded.")
    rounds: list[RoundRecord] = Field(min_length=1)
    start: StartBounds
    digests: Digests

    @property
    def pairs(self) -> int:
        """Pairs that were expanded."""
        return self.rounds[-1].pairs


def bits(certificate: Certificate) -> Bits:
    """The intervals of the start in bits, which follow from the others."""
    start, eta = certificate.start, float(certificate.theory["eta"])  # type: ignore[arg-type]
    (loss, lack) = ([_negated(side) for side in reversed(of)] for of in (start.v_r, start.u_r))
    return Bits(
        individual=[_in_bits(human.x_h, 1.0) for human in start.humans],
        aggregate=_in_bits(lack, -1.0 / eta),
        long_term=_in_bits(loss, -1.0),
    )


def _negated(bound: float | None) -> float | None:
    return None if bound is None else -bound


def _in_bits(numbers: Interval, factor: float) -> Interval:
    """The interval of ``factor`` times log2, a little wider, for logarithms are rounded."""
    sides = [None if not number else factor * math.log2(number) for number in numbers]
    low, high = sides if factor > 0 else reversed(sides)
    return [
        None if low is None else low - ROUNDED * abs(low),
        None if high is None else high + ROUNDED * abs(high),
    ]


def interval(low: float, high: float) -> Interval:
    """An interval, without bounds that are infinite."""
    return [float(bound) if np.isfinite(bound) else None for bound in (low, high)]


def start_bounds(question: Question, bounds: PairBounds) -> StartBounds:
    """Intervals at the start, goals in the order of each human's."""
    spec, humans = question.spec, []
    for position, (human, goals) in enumerate(zip(spec.humans, question.goals, strict=True)):
        first = question.first_goal[position]
        rows = [
            GoalBounds(
                name=spec.goals[goal].name,
                v_e=interval(bounds.v_e.low[0, column], bounds.v_e.high[0, column]),
            )
            for column, goal in enumerate(goals, first)
        ]
        power = interval(bounds.x_h.low[0, position], bounds.x_h.high[0, position])
        humans.append(HumanBounds(name=spec.agents[human].name, x_h=power, goals=rows))
    return StartBounds(
        v_r=interval(-bounds.loss.high[0], -bounds.loss.low[0]),
        u_r=interval(-bounds.lack.high[0], -bounds.lack.low[0]),
        humans=humans,
    )


def round_record(question: Question, done: Round) -> RoundRecord:
    """A round as data."""
    start = start_bounds(question, done.start)
    return RoundRecord(
        occupancy=done.epsilon,
        pairs=done.pairs,
        transitions=done.transitions,
        outside=done.outside,
        seconds=done.seconds,
        v_r=start.v_r,
        widest_v_e=float(np.max(start.widths)),
        median_v_e=float(np.median(start.widths)),
    )


def require_room(directory: Path) -> None:
    """Refuse a place for a certificate that something else has, before anything is computed.

    Raises:
        StorageError: if something else is there.
    """
    arrays = directory / ARRAYS
    for path in (directory, arrays):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise StorageError(f"{path}: is no directory, and a certificate belongs there; move it")
    if arrays.exists() and any(arrays.iterdir()) and not (arrays / MANIFEST).is_file():
        raise StorageError(
            f"{arrays}: holds other files, and those of a certificate belong there; move them"
        )


def write_certificate(
    directory: Path,
    outcome: Certification,
    effort: Effort,
    about: About,
) -> Certificate:
    """Write a certificate and its arrays into a folder, replacing an older one.

    Args:
        directory: The folder; made if missing.
        outcome: What was found.
        effort: The limits.
        about: The run, and the software.

    Raises:
        StorageError: if the disk refuses.
    """
    question = outcome.unrolled.question
    make_folder(directory)
    try:
        (directory / FILE).unlink(missing_ok=True)  # It must never stand beside other arrays.
    except OSError as error:
        raise refused(directory / FILE, error) from error
    arrays = arrays_of(outcome)
    save_arrays(directory / ARRAYS, arrays)
    proved, assumed = outcome.rounds[-1].proved, outcome.assumed
    certificate = Certificate(
        about=about,
        theory=theory_data(question),
        claims=Claims(
            min_power=assumed.min_power,
            power_source=None if assumed.min_power is None else assumed.power_source,
            power_states=None if outcome.proof is None else outcome.proof.states,
            never_ends_early=assumed.never_ends_early,
            is_timed=outcome.unrolled.is_timed,
            has_bounded_chances=assumes_bounded_chances(
                question, is_timed=outcome.unrolled.is_timed
            ),
            open_pairs=outcome.unrolled.open_pairs,
            proved_pairs=None if proved is None else proved.exactly,
            nearly_proved_pairs=None if proved is None else proved.nearly,
        ),
        limits=Limits(
            occupancy=effort.epsilon,
            minutes=effort.minutes,
            memory_gb=effort.memory_gb,
            ended=outcome.ended,
        ),
        vacuous_v_r=start_bounds(question, outcome.vacuous).v_r,
        rounds=[round_record(question, round_) for round_ in outcome.rounds],
        start=start_bounds(question, outcome.rounds[-1].start),
        digests=Digests(
            world=world_digest(question.world),
            policies=policies_digest(arrays),
            arrays=manifest_digest(directory),
        ),
    )
    body = certificate.model_dump(mode="json")
    write_file(directory / FILE, sealed_json(directory / FILE, FORMAT, VERSION, body))
    return certificate


def symbols_of(question: Question) -> dict[str, JsonValue]:
    """The symbols of the theory that the values of given policies depend on."""
    theory = question.theory.model_dump(mode="json", include=PARAMETERS)
    return theory | {"accrual": question.accrual}


def theory_data(question: Question) -> dict[str, JsonValue]:
    """The same with the names of the humans whose power counts, unless all do."""
    theory = symbols_of(question)
    if question.counts is not None:
        theory["counts"] = [question.spec.agents[human].name for human in question.counts]
    return theory


def arrays_of(outcome: Certification) -> dict[str, np.ndarray]:
    """Everything that it takes to work the bounds out again from the world."""
    unrolled, moments = outcome.unrolled, outcome.unrolled.moments
    layers, landing = unrolled.layers, unrolled.landings
    numbers = np.arange(landing.count, dtype=np.int32)
    arrays = {
        "states": np.ascontiguousarray(unrolled.states.rows),
        "landing_state": landing.state,
        "landing_duration": np.ascontiguousarray(landing.duration(numbers)),
        "moments": moments.keys,
        "pair_landing": np.concatenate([layer.landing for layer in layers]),
        "pair_moment": np.concatenate([layer.moment for layer in layers]),
        "first_pair": np.cumsum([0, *(len(layer.moment) for layer in layers)]),
        "robot_policy": unrolled.policies.robot,
    }
    for human in range(len(unrolled.question.spec.humans)):
        arrays[f"human_policy_{human}"] = unrolled.policies.human(human)
    values = _values(outcome.induced.times)
    if sum(value.nbytes for value in values.values()) <= SMALL_BYTES:
        arrays |= values
    return arrays


def _values(times: Sequence[PairBounds]) -> dict[str, np.ndarray]:
    """Bounds of X_h, -U_r and -V_r in all pairs, time by time."""
    parts = {
        "x_h": [bounds.x_h for bounds in times],
        "lack": [bounds.lack for bounds in times],
        "loss": [bounds.loss for bounds in times],
    }
    return {
        f"{name}_{side}": np.concatenate([getattr(side_bounds, side) for side_bounds in bounds])
        for name, bounds in parts.items()
        for side in Bounds._fields
    }


def policies_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of the policies in all pairs that were expanded."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        if name in ("states", "moments") or "policy" in name:
            total.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


def manifest_digest(directory: Path) -> str:
    """The sha256 of the manifest of a certificate's arrays, which lists those of all arrays."""
    return hashlib.sha256((directory / ARRAYS / MANIFEST).read_bytes()).hexdigest()


def read_certificate(directory: Path) -> tuple[Certificate, dict[str, np.ndarray]]:
    """A certificate and its arrays.

    Raises:
        StorageError: if the certificate is missing, damaged, or not ours.
    """
    path = directory / FILE
    if not path.is_file():
        raise StorageError(
            f"{path}: there is no certificate to verify; make one with: empo certify"
        )
    certificate = read_sealed(path, FORMAT, VERSION, Certificate)
    arrays, _ = load_arrays(directory / ARRAYS)
    if manifest_digest(directory) != certificate.digests.arrays:
        raise StorageError(f"{directory / ARRAYS}: is not what {path} was written with")
    return certificate, arrays
