"""Fitting a table: the values asked about move towards their targets, and no others.

Targets that share a value are first combined to their weighted mean, so what a value moves to
does not depend on their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.types import Fit, ValueQuery
from empo_core.worlds.row_table import RowTable
from empo_lookup_tables.keys import has_unknown
from empo_lookup_tables.rules import Adam, Rule, RunningMean, Step, UniqueEntries, grown
from empo_lookup_tables.table import LookupTable


class TableRegression:
    """Fits one table, by the rule of its params.

    ``max_grad_norm`` cuts the gradient of the weighted mean of the squared errors with
    respect to all values, where the rule follows it (``adam``); the others go a share of the way
    to each target, which cannot overshoot. ``weight_decay`` draws fitted values back towards the
    default; a running mean, which would no longer be one, refuses it.
    """

    def __init__(
        self, table: LookupTable, *, weight_decay: float, max_grad_norm: float | None
    ) -> None:
        params = table.params
        self._table = table
        self._rule: Rule
        if params.rule == "running-mean":
            self._rule = RunningMean(params.min_rate, weight_decay)
        elif params.rule == "step":
            self._rule = Step(table.default, weight_decay)
        else:
            self._rule = Adam(table.default, weight_decay, max_grad_norm)

    @torch.no_grad()
    def fit(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        *,
        lr: float,
    ) -> Fit:
        """Move the table's answers towards the targets, by one step.

        Raises:
            NonFiniteError: A target, weight or the learning rate is not finite, or errors are too
                large to be squared; no answer changes.
        """
        table = self._table
        weight = weight.to(table.values)
        target = torch.where(weight > 0, target.to(table.values), 0.0)
        lines = table.lines(query)
        total = weight.sum()
        loss = (weight * (table.stored(lines) - target).square()).sum() / total
        if not math.isfinite(float(loss)) or not math.isfinite(lr):
            if float(total) == 0 and math.isfinite(lr):
                return Fit(total, total)
            raise _not_finite(table, target, weight, lr)
        if has_unknown(lines):
            lines = table.lines(query, grow=True)
        lines, weight, weighted = _combined(lines, weight, weight * target)
        value = table.values.index_select(0, lines)
        asked = weight > 0
        mean = torch.where(asked, weighted / weight, value)
        gradient = weight * (value - mean) * (2 / total)
        norm = torch.linalg.vector_norm(gradient)
        if not math.isfinite(float(norm)):
            raise _not_finite(table, target, weight, lr)
        count = table.counts.index_select(0, lines).add_(weight)
        entries = UniqueEntries(lines, value, mean, weight, count, gradient, float(norm))
        self._make_room()
        new = table.bounded(self._rule(entries, lr))
        table.values.index_copy_(0, lines, torch.where(asked, new, value))
        table.counts.index_copy_(0, lines, count)
        return Fit(loss, norm)

    def default_lr(self, *, sampled: bool) -> float:
        """All of the way to an expectation, and a share of the way to a sample."""
        if self._table.params.rule == "adam":
            return 0.05
        return 0.3 if sampled else 1.0

    def memory_bytes(self) -> int:
        """Bytes taken by what is remembered beside the table."""
        return sum(kept.nbytes for kept in self._rule.moments.values())

    def state_dict(self) -> dict[str, Tensor]:
        """State of the rule for each line that ``table.state_dict()`` has at this moment."""
        self._make_room()
        return {name: self._table.saved(kept) for name, kept in self._rule.moments.items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned, beside the table's own.

        Raises:
            ValueError: It was saved by another rule.
        """
        if state_dict.keys() != self._rule.moments.keys():
            raise ValueError(
                f"rule {self._table.params.rule!r} keeps {sorted(self._rule.moments)}, but what "
                f"was saved is {sorted(state_dict)}; keep the rule of a run that is resumed"
            )
        values = self._table.values
        for name, tensor in state_dict.items():
            self._rule.moments[name] = tensor.detach().to(values, copy=True)

    def _make_room(self) -> None:
        """As many lines of moments as the table has, on its device."""
        values = self._table.values
        for name, kept in self._rule.moments.items():
            if len(kept) < len(values):
                wide = kept if len(kept) else values.new_zeros(0, values.shape[1])
                self._rule.moments[name] = grown(wide, len(values))


def _combined(
    lines: Int[Tensor, " query"],
    weight: Float[Tensor, "query output"],
    weighted: Float[Tensor, "query output"],
) -> tuple[Int[Tensor, " line"], Float[Tensor, "line output"], Float[Tensor, "line output"]]:
    """The distinct lines, and the sums of weights and of weighted targets of each."""
    # Numbering by the same hash table takes a tenth of the time that torch.unique sorts.
    distinct = RowTable(1, lines.numpy().dtype)
    position = torch.from_numpy(distinct.number(lines.numpy()[:, None])).to(weight.device)
    lines = torch.from_numpy(distinct.rows[:, 0].copy()).to(weight.device)
    if len(lines) == len(weight):
        return lines, weight, weighted
    sums = weight.new_zeros(2, len(lines), weight.shape[1])
    sums[0].index_add_(0, position, weight)
    sums[1].index_add_(0, position, weighted)
    return lines, sums[0], sums[1]


def _not_finite(table: LookupTable, target: Tensor, weight: Tensor, lr: float) -> NonFiniteError:
    names = {"target": target, "weight": weight, "learning rate": torch.tensor(lr)}
    names["stored value"] = table.values[: table.num_entries * table.columns]
    wrong = [name for name, tensor in names.items() if not bool(tensor.isfinite().all())]
    what = f"a {wrong[0]} is" if wrong else "errors are too large, so that their squares are"
    return NonFiniteError(
        f"while a table of {table.quantity} was fitted, {what} not finite; nothing was changed. "
        "Look at what the targets are computed from."
    )
