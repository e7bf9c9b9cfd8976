"""Reasons in plain words, made of the largest parts of a difference and of nothing else.

The page says the same in the same words: the templates are data, ``sentences.json``, and numbers
are rounded as JavaScript rounds them, half away from zero.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from importlib import resources

import numpy as np
from jaxtyping import Float64

from empo_inspector.why import Reasons

MOST_PARTS = 3
MOST_TIES = 5
LEAST_SHARE = 5
"""Per cent of the difference that a part needs in order to be named."""


@cache
def templates() -> dict[str, str]:
    """Pieces of sentences by name."""
    text = resources.files("empo_inspector").joinpath("sentences.json").read_text()
    texts: dict[str, str] = json.loads(text)
    return texts


def sentences(reasons: Reasons) -> list[str]:
    """Reasons as sentences."""
    say, q_r = templates(), reasons.policies.q_r[0]
    q_first, q_second = float(q_r[reasons.first]), float(q_r[reasons.second])
    names = reasons.spec.robot_action_names
    actions = {
        "first": names[reasons.first],
        "second": names[reasons.second],
        "q_first": significant(q_first),
        "q_second": significant(q_second),
    }
    if reasons.is_tie and reasons.steps_left == 1:
        return [say["last"]]
    if reasons.is_tie:
        return [say["equal"].format(**actions)]
    as_good = ", ".join(names[action] for action in reasons.ties[:MOST_TIES])
    ties = [say["ties"].format(first=actions["first"], others=as_good)] if as_good else []
    if reasons.costs is not None:
        risk = say["risk"].format(rho=reasons.theory.rho)
        return [say["preferred"].format(**actions), *ties, risk]
    return [say["preferred"].format(**actions), *ties, *_reasons(reasons), _when(reasons)]


def _reasons(reasons: Reasons) -> list[str]:
    """A sentence for each of the largest parts, and one for the rest."""
    say = templates()
    parts = [*reasons.parts.sum(0).tolist(), float(reasons.ends.sum()), reasons.remainder]
    others = dict(enumerate(("ends", "remainder"), len(parts) - 2))
    order = sorted(range(len(parts)), key=lambda part: (-abs(parts[part]), part))[:MOST_PARTS]
    named = [part for part in order if abs(parts[part]) >= LEAST_SHARE / 100 * abs(reasons.gap)]
    remainder = reasons.gap - sum(parts[part] for part in named)
    *shares, rest_share = whole_shares([*(parts[part] for part in named), remainder], reasons.gap)
    clauses, is_first = [], True
    for part, share in zip(named, shares, strict=True):
        kind = "against" if share < 0 else "for" if is_first else "more"
        is_first = is_first and share < 0
        about = say[others[part]] if part in others else _goal(reasons, part)
        clauses.append(say[kind].format(share=abs(share), goal=about))
    if rest_share:
        clauses.append(say["rest"].format(share=rest_share))
    return clauses


def _goal(reasons: Reasons, goal: int) -> str:
    """The chances of one goal where its part arises, with as few decimals as tell them apart."""
    say, spec, origin = templates(), reasons.spec, reasons.origins[goal]
    first, second = origin.chances
    decimals = next((n for n in range(2, 7) if fixed(first, n) != fixed(second, n)), None)
    return say["unchanged" if decimals is None else "changed"].format(
        human=spec.agents[spec.goals[goal].human].name,
        attains=say["attains"],
        goal=spec.goals[goal].name,
        achieved=say["achieved"] if reasons.achieved[goal] else "",
        chance=say["chance" if reasons.theory.gamma_h == 1 else "discounted_chance"],
        first=fixed(first, decimals or 2),
        second=fixed(second, decimals or 2),
        when=say["then" if origin.step > 1 else "next"].format(step=origin.step),
        state=reasons.state_name(origin.state),
    )


def _when(reasons: Reasons) -> str:
    """The shortest stretch of steps that makes up half of what all steps contribute."""
    size = np.abs(reasons.parts.sum(1) + reasons.ends)
    begin, end = busiest(size)
    say = templates()
    if end - begin > 1:
        return say["steps"].format_map({"from": begin + 1, "to": end})
    return say["one_step"].format_map({"from": end}) if begin else say["next_step"]


def busiest(size: Float64[np.ndarray, " step"]) -> tuple[int, int]:
    """The first of the shortest stretches that hold half of a total: begin and end."""
    total = [0.0]
    for value in size.tolist():
        total.append(total[-1] + value)
    half = total[-1] / 2
    for length in range(1, len(size) + 1):
        for begin in range(len(size) - length + 1):
            if total[begin + length] - total[begin] >= half:
                return begin, begin + length
    return 0, len(size)


def whole_shares(parts: Sequence[float], gap: float) -> list[int]:
    """Per cent of a difference as whole numbers that sum to 100, by largest remainder."""
    exact = [100 * part / gap for part in parts]
    shares = [int(np.floor(share)) for share in exact]
    missing = 100 - sum(shares)
    order = sorted(range(len(parts)), key=lambda part: (shares[part] - exact[part], part))
    for part in order[:missing]:
        shares[part] += 1
    return shares


def fixed(value: float, decimals: int) -> str:
    """As JavaScript's ``toFixed``."""
    return format(Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP), "f")


def significant(value: float) -> str:
    """Five significant digits, as JavaScript's ``toPrecision``."""
    if value == 0 or not np.isfinite(value):
        return f"{value:.4f}"
    exact = Decimal(value)
    for _ in range(2):  # Rounding may carry into a new digit.
        power = exact.adjusted()
        exact = exact.quantize(Decimal(1).scaleb(power - 4), ROUND_HALF_UP)
    if -7 < power < 5:
        return format(exact, "f")
    digits = f"{exact.scaleb(-power):.4f}"
    return f"{digits}e{power:+d}"
