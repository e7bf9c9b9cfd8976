"""Who holds the power, as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from empo_core.tables import bar, report_table
from empo_theory.diagnostics import Coalitions, HumanPower, PowerFindings, Remainder, ReserveCheck

NOTHING = "nothing"
"""Stands for the logarithm of 0: no goal is attained."""


def power_tables(findings: PowerFindings) -> Iterator[RenderableType]:
    """Tables of what was measured."""
    if any(human.alone or human.threats or human.canonical for human in findings.humans):
        yield _humans(findings.humans)
    if findings.alone is not None:
        p, long_term = _bits(findings.alone.P), _bits(findings.alone.L)
        yield Text(f"without robots: aggregate power P {p}, long-term power L {long_term} bits")
    if findings.coalitions is not None:
        yield _coalitions(findings.coalitions)
        yield _shares(findings.coalitions)
    if findings.reserve is not None:
        yield _reserve(findings.reserve)


def _humans(humans: Sequence[HumanPower]) -> Table:
    """A line for each human, and a column for each case that was measured."""
    first = humans[0]
    columns = ["human", "I_h", "", "of at most"]
    columns += ["alone"] if first.alone is not None else []
    columns += [f"{threat.adversary} λ={threat.penalty:g}" for threat in first.threats]
    columns += ["every state"] if first.canonical is not None else []
    table = report_table("Who holds the power, in bits", *columns, texts=("",))
    for human in humans:
        cases: list[Remainder] = [*([human.alone] if human.alone else []), *human.threats]
        canonical = [human.canonical.bits] if human.canonical else []
        share = 0.0 if human.bits is None else 2 ** (human.bits - human.maximum)
        table.add_row(
            human.name,
            _bits(human.bits),
            bar(share, "green"),
            _bits(human.maximum),
            *(_bits(case.bits) for case in cases),
            *map(_bits, canonical),
        )
    return table


def _coalitions(measured: Coalitions) -> Table:
    columns = ("coalition", *measured.goals, "value", "dividend")
    table = report_table("Attained together, at best in brackets", *columns)
    for coalition in measured.coalitions:
        chances = zip(coalition.capability, coalition.best, strict=True)
        table.add_row(
            ", ".join(coalition.members),
            *(f"{now:.4f} ({best:.4f})" for now, best in chances),
            f"{coalition.value:.4f}",
            f"{coalition.dividend:+.4f}",
        )
    return table


def _shares(measured: Coalitions) -> Table:
    table = report_table(
        "Shares of what all attain together", "human", "share", "", "bits", texts=("",)
    )
    total = sum(share.mass for share in measured.shares)
    for share in measured.shares:
        bits = "–" if share.bits is None else _bits(share.bits)
        part = share.mass / total if total else 0.0
        table.add_row(share.name, f"{share.mass:.4f}", bar(part, "cyan"), bits)
    return table


def _reserve(check: ReserveCheck) -> Table:
    title = f"With a further goal (states: {check.states:,})"
    table = report_table(
        title, "weight", "best action", "bits lost without knowing", texts=("best action",)
    )
    table.add_row("not there", check.action, "–")
    for line in check.weights:
        lost = "–" if line.lost is None else f"{line.lost:.4f}"
        table.add_row(f"{line.weight:.3g}", line.action, lost)
    return table


def _bits(bits: float | None) -> str:
    return NOTHING if bits is None else f"{round(bits, 4) + 0.0:.4f}"
