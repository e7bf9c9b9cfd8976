"""A certificate for people: what it says and what it does not, a table, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from typing import TYPE_CHECKING

from empo_bounds.certificate import Certificate, Interval, bits
from empo_pictures.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNBOUNDED, DIGITS = "unbounded", 4
LEAST_PLAIN, MOST_PLAIN = Decimal("1e-4"), Decimal("1e6")
"""Numbers from here to there are shown without an exponent."""
NEGLIGIBLE = Decimal("1e-9")
"""Share of itself by which a number may be rounded inwards, so that 1 + 1e-15 is shown as 1."""
EXACT = 800
"""Digits that hold any number of double precision."""


def statement(certificate: Certificate) -> list[str]:
    """The claim of a certificate in sentences, beginning with what it is about."""
    humans = "the humans that the run assumed"
    if certificate.about.human_prior is not None:
        humans = f"humans by prior {certificate.about.human_prior['name']!r}"
    lines = [
        f"This is about the model {certificate.about.world!r} with {humans}, and about the policy "
        "of this run only; it says nothing about its distance to the theory's solution.",
        "In this model, with these humans, this policy is worth V_r in "
        f"{interval_text(certificate.start.v_r)} at the start, and each human attains each goal "
        "with a (discounted) chance in the interval below.",
    ]
    counts = certificate.theory.get("counts")
    if isinstance(counts, list):
        lines.append(
            f"U_r, and with it V_r, counts the power of {', '.join(map(str, counts))} only."
        )
    return [*lines, *_claims(certificate)]


def _claims(certificate: Certificate) -> list[str]:
    claims, lines = certificate.claims, []
    if claims.min_power is not None:
        lines.append(_least_power(certificate))
    if certificate.start.v_r[0] is None:
        lines.append(_why_unbounded(certificate))
    if claims.never_ends_early:
        lines.append(
            "Assumed: no episode ends before the horizon; it does in no state that was met."
        )
    if claims.open_pairs and not claims.is_timed:
        lines.append("Assumed: every step lasts 1, as all do that were met.")
    if claims.open_pairs and claims.has_bounded_chances:
        lines.append(
            "Assumed: chances in states that were not expanded are at most 1, although the "
            "probabilities of a step may sum to a little more than 1, in every step."
        )
    lines.append(
        "Lower bounds are printed rounded down and upper bounds rounded up, to a relative "
        f"{NEGLIGIBLE:.0e}."
    )
    return lines


def _least_power(certificate: Certificate) -> str:
    """The least power, and where it comes from."""
    claims, more = certificate.claims, certificate.claims.nearly_proved_pairs
    nearly = f"in {more:,} more within rounding, " if more else ""
    power = f"everybody's X_h is at least {_side([claims.min_power, None], 0, None)}"
    expanded = (
        f"proved in {claims.proved_pairs:,} of {certificate.pairs:,} expanded pairs, "
        f"{nearly}refuted in none."
    )
    if claims.power_source == "proved":
        return (
            f"Proved: {power} while a step is left, in all {claims.power_states:,} states that can "
            "be reached: whatever all others do, each human's next step achieves goals."
        )
    if claims.power_source == "run":
        return (
            f"Taken from the run, and not proved here: {power} while a step is left, as in all "
            f"reachable states of its solution; {expanded}"
        )
    return (
        f"Assumed: everybody's X_h is at least {claims.min_power:g} (min_power) while a step is "
        f"left; {expanded}"
    )


def _why_unbounded(certificate: Certificate) -> str:
    """Why there is no bound of V_r from below."""
    claims = certificate.claims
    if not claims.open_pairs:
        return (
            "V_r is unbounded from below, and everything was expanded: in some state that is met a "
            "human has no power at all (X_h = 0), or less than there are numbers for."
        )
    if not claims.min_power:
        return (
            "Nothing is known or assumed about power in states that were not expanded, so V_r is "
            "unbounded from below; --min-power assumes something."
        )
    return (
        "V_r is unbounded from below: nothing bounds how long steps last, or how much of V_r comes "
        "late, where nothing was expanded. Expand more (--eps)."
    )


def interval_text(interval: Interval) -> str:
    """An interval in brackets, to four digits, rounded outwards but for ``NEGLIGIBLE``."""
    return "[{}, {}]".format(*(_side(interval, side, None) for side in (0, 1)))


def _side(interval: Interval, side: int, places: int | None) -> str:
    """One side of an interval, rounded outwards to so many places or to four digits.

    It has at most eight digits. What is nearer than a share of ``NEGLIGIBLE`` to a number of so
    many digits is that number. Very large and very small numbers have four digits and an exponent.
    """
    number = interval[side]
    if number is None:
        return UNBOUNDED
    exact = Decimal(number)
    if not exact:
        return "0"
    outwards, digits = ROUND_CEILING if side else ROUND_FLOOR, DIGITS - 1 - exact.adjusted()
    with localcontext(prec=EXACT):
        exact += abs(exact) * (-NEGLIGIBLE if side else NEGLIGIBLE)
        if not LEAST_PLAIN <= abs(exact) < MOST_PLAIN:
            return f"{Context(prec=DIGITS, rounding=outwards).plus(exact):.{DIGITS - 1}e}"
        places = digits if places is None else min(places, digits + DIGITS)
        return f"{exact.quantize(Decimal(1).scaleb(-places), outwards):f}"


def goal_rows(certificate: Certificate) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Headings and rows: the robots' values, then every human's power and goals."""
    start, in_bits = certificate.start, bits(certificate)
    rows: list[tuple[str, ...]] = [
        ("", name, *_interval_texts(interval))
        for name, interval in (
            ("V_r", start.v_r),
            ("L, bits", in_bits.long_term),
            ("U_r", start.u_r),
            ("P, bits", in_bits.aggregate),
        )
    ]
    for human, power in zip(certificate.start.humans, in_bits.individual, strict=True):
        rows.append((human.name, "X_h", *_interval_texts(human.x_h)))
        rows.append((human.name, "I_h, bits", *_interval_texts(power)))
        rows += [(human.name, goal.name, *_interval_texts(goal.v_e)) for goal in human.goals]
    return ("human", "goal", "at least", "at most", "width"), rows


def _interval_texts(interval: Interval) -> tuple[str, str, str]:
    low, high = interval
    width = UNBOUNDED if low is None or high is None else _width(high - low)
    return _side(interval, 0, 4), _side(interval, 1, 4), width


def _width(width: float) -> str:
    return f"{width:.2g}" if width == 0 or width > NEGLIGIBLE else f"< {NEGLIGIBLE:.0e}"


def round_rows(certificate: Certificate) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Headings and rows: how intervals narrowed with the pairs that were expanded."""
    rows: list[tuple[str, ...]] = [
        (
            f"{round_.occupancy:.1e}",
            f"{round_.pairs:,}",
            f"{round_.outside:.2g}",
            interval_text(round_.v_r),
            _width(round_.widest_v_e),
            _width(round_.median_v_e),
            f"{round_.seconds:.1f}",
        )
        for round_ in certificate.rounds
    ]
    return (
        ("occupancy", "pairs", "outside", "V_r", "widest V_h^e", "median", "seconds"),
        rows,
    )


def picture(certificate: Certificate, right: float | None = None) -> Figure:
    """Width against effort: V_r, and the widths of V_h^e, by the number of pairs expanded.

    Args:
        certificate: The certificate.
        right: The right V_r, where it is known, as a line.
    """
    figure, (left, other) = new_figure(1, 2, width=9)
    pairs = [round_.pairs for round_ in certificate.rounds]
    for label, side in (("at most", 1), ("at least", 0)):
        bounded = [
            (count, bound)
            for count, round_ in zip(pairs, certificate.rounds, strict=True)
            if (bound := round_.v_r[side]) is not None
        ]
        # A bound that is missing is named, so that nobody looks for its curve.
        missing = len(pairs) - len(bounded)
        count = "" if not bounded else f" in {missing} of {len(pairs)} rounds"
        label += f": {UNBOUNDED}{count}" if missing else ""
        left.plot([x for x, _ in bounded], [y for _, y in bounded], marker=".", label=label)
    for bound in certificate.vacuous_v_r:
        if bound is not None:
            left.axhline(bound, color="grey", linestyle=":", linewidth=1)
            left.plot([], [], color="grey", linestyle=":", label="nothing expanded")
    if right is not None:
        left.axhline(right, color="black", linewidth=1, label="exact")
    left.set_ylabel("$V_r$ at the start")
    other.plot(
        pairs, [round_.widest_v_e for round_ in certificate.rounds], marker=".", label="widest"
    )
    other.plot(
        pairs, [round_.median_v_e for round_ in certificate.rounds], marker=".", label="median"
    )
    other.set_ylabel("width of $V_h^e$ at the start")
    for axes in (left, other):
        axes.set_xscale("log")
        axes.set_xlabel("pairs expanded")
        shown_once = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        if shown_once:
            axes.legend(shown_once.values(), shown_once, fontsize="small", framealpha=0.9)
    return figure
