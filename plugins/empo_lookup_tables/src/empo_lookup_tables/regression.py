"""Fitting a table: the values asked about move towards their targets, and no others.

Targets that share a value are first combined to their weighted mean, so what a value moves to
does not depend on their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.types import Fit, ValueQuery
from empo_lookup_tables.kernels import REFUSED, UNKNOWN, Outcome, Questions, Rates, fit_lines
from empo_lookup_tables.keys import has_unknown
from empo_lookup_tables.rules import Adam, Rule, RunningMean, Step, UniqueEntries, grown
from empo_lookup_tables.table import BOUNDS, LookupTable
from empo_worlds.row_table import RowTable


class TableRegression:
    """Fits one table, by the rule of its params.

    ``max_grad_norm`` cuts the gradient of the weighted mean of the squared errors with
    respect to all values, where the rule follows it (``adam``); the others go a share of the way
    to each target, which cannot overshoot. ``weight_decay`` draws fitted values back towards the
    default; a running mean, which would no longer be one, refuses it.

    Attributes:
        is_compiled: Whether values on the CPU are moved in compiled loops, which Adam has not.
    """

    def __init__(
        self, table: LookupTable, *, weight_decay: float, max_grad_norm: float | None
    ) -> None:
        params = table.params
        self._table = table
        self._rule: Rule
        self.is_compiled = params.rule != "adam"
        if params.rule == "running-mean":
            self._rule = RunningMean(params.min_rate, weight_decay)
        elif params.rule == "step":
            self._rule = Step(table.default, weight_decay)
        else:
            self._rule = Adam(table.default, weight_decay, max_grad_norm)

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
            NonFiniteError: if a target, weight or the learning rate is not finite, or errors are
                too large to be squared; no answer changes.
        """
        table, values = self._table, self._table.values.detach()
        target, weight = target.to(values), weight.to(values)
        if self.is_compiled and values.is_cpu:
            return self._fit_in_loops(query, target, weight, lr)
        lines = table.lines(query)
        total, loss, are_known = _errors(table, lines, target, weight)
        # Errors that fit into double precision may be too large for the table's.
        if not loss <= torch.finfo(values.dtype).max or not math.isfinite(lr):
            return self._refused(target, weight, total, lr)
        if not are_known:
            lines = table.lines(query, grow=True)
        norm = self._move_values(lines, target, weight, total, lr)
        if not math.isfinite(norm):
            raise _not_finite(table, target, weight, lr)
        return Fit(*torch.tensor([loss, norm], dtype=values.dtype).unbind())

    def default_lr(self, *, sampled: bool) -> float:
        """All of the way to an expectation, and a share of the way to a sample."""
        if self._table.params.rule == "adam":
            return 0.05
        return 0.3 if sampled else 1.0

    def memory_bytes(self) -> int:
        """Bytes taken by what is remembered beside the table."""
        return sum(moment.nbytes for moment in self._rule.moments.values())

    def state_dict(self) -> dict[str, Tensor]:
        """State of the rule for each line that ``table.state_dict()`` has at this moment."""
        self._make_room()
        return {name: self._table.saved(moment) for name, moment in self._rule.moments.items()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned, beside the table's own.

        Raises:
            ValueError: if the state was saved by another rule.
        """
        if state_dict.keys() != self._rule.moments.keys():
            raise ValueError(
                f"rule {self._table.params.rule!r} keeps {sorted(self._rule.moments)}, but what "
                f"was saved is {sorted(state_dict)}; keep the rule of a run that is resumed"
            )
        values = self._table.values
        for name, tensor in state_dict.items():
            self._rule.moments[name] = tensor.detach().to(values, copy=True)

    @torch.no_grad()
    def _move_values(
        self,
        lines: Int[Tensor, " query"],
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        total: float,
        lr: float,
    ) -> float:
        """Move values, unless the gradient is not finite; returns its norm."""
        table = self._table
        target = torch.where(weight > 0, target, 0.0)
        lines, weight, weighted = _combined(lines, weight, weight * target)
        value = table.values.index_select(0, lines)
        has_weight = weight > 0
        mean = torch.where(has_weight, weighted / weight, value)
        gradient = weight * (value - mean) * (2 / total)
        norm = float(torch.linalg.vector_norm(gradient))
        if math.isfinite(norm):
            count = table.counts.index_select(0, lines).add_(weight)
            entries = UniqueEntries(lines, value, mean, weight, count, gradient, norm)
            self._make_room()
            new = table.bounded(self._rule(entries, lr))
            table.values.index_copy_(0, lines, torch.where(has_weight, new, value))
            table.counts.index_copy_(0, lines, count)
        return norm

    def _fit_in_loops(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        lr: float,
    ) -> Fit:
        """The same in compiled loops."""
        if not math.isfinite(lr):
            return self._refused(target, weight, float(weight.sum()), lr)
        targets, rates = (target.numpy(), weight.numpy()), self._rates(lr)
        line = self._table.lines(query).numpy()
        outcome = self._moved_in_loops(Questions(line, *targets), rates)
        if outcome.done == UNKNOWN:  # Now that errors are known to be finite.
            line = self._table.lines(query, grow=True).numpy()
            outcome = self._moved_in_loops(Questions(line, *targets), rates)
        if outcome.done == REFUSED:
            return self._refused(target, weight, outcome.total, lr)
        # Torch takes four times as long to read numbers from a list.
        numbers = np.array([outcome.loss, outcome.norm], targets[0].dtype)
        return Fit(*torch.from_numpy(numbers).unbind())

    def _moved_in_loops(self, batch: Questions, rates: Rates) -> Outcome:
        questions, outputs = batch.target.shape
        values, counts = self._table.arrays
        return fit_lines(
            batch, np.zeros(2 << questions.bit_length(), np.int32), np.empty(questions, np.int32),
            np.zeros((2, questions, outputs)), values, counts, float(np.finfo(values.dtype).max),
            rates,
        )  # fmt: skip

    def _rates(self, lr: float) -> Rates:
        """Parameters of the rule."""
        table, rule = self._table, self._rule
        assert not isinstance(rule, Adam)
        share, min_share, decay = rule.shares(lr)
        low, high = BOUNDS[table.quantity]
        limits = -math.inf if low is None else low, math.inf if high is None else high
        return Rates(share, min_share, decay, table.default, *limits)

    def _refused(self, target: Tensor, weight: Tensor, total: float, lr: float) -> Fit:
        """Zeros where nothing was asked."""
        if total == 0 and math.isfinite(lr):
            return Fit(*target.new_zeros(2).unbind())
        raise _not_finite(self._table, target, weight, lr)

    def _make_room(self) -> None:
        """As many lines of moments as the table has, on its device."""
        values = self._table.values
        for name, moment in self._rule.moments.items():
            if len(moment) < len(values):
                wide = moment if len(moment) else values.new_zeros(0, values.shape[1])
                self._rule.moments[name] = grown(wide, len(values))


@torch.no_grad()
def _errors(
    table: LookupTable,
    lines: Int[Tensor, " query"],
    target: Float[Tensor, "query output"],
    weight: Float[Tensor, "query output"],
) -> tuple[float, float, bool]:
    """The total weight, the weighted mean of the squared errors, and whether all lines exist."""
    total = weight.sum()
    error = torch.where(weight > 0, table.stored(lines) - target, 0.0)
    loss = (weight * error.square()).sum() / total
    return float(total), float(loss), not has_unknown(lines)


def _numbered(lines: Int[np.ndarray, " query"]) -> tuple[Int32[np.ndarray, " query"], int]:
    """The number of each line in order of first occurrence, and how many there are."""
    # The hash table takes a tenth of the time that torch.unique sorts.
    distinct = RowTable(1, np.dtype(np.int64))
    return distinct.number(lines[:, None]), distinct.count


def _combined(
    lines: Int[Tensor, " query"],
    weight: Float[Tensor, "query output"],
    weighted: Float[Tensor, "query output"],
) -> tuple[Int[Tensor, " line"], Float[Tensor, "line output"], Float[Tensor, "line output"]]:
    """The distinct lines, and the sums of weights and of weighted targets of each."""
    numbers, count = _numbered(lines.numpy())
    position = torch.from_numpy(numbers).long()
    distinct = torch.empty(count, dtype=torch.int64)
    distinct[position] = lines
    position, distinct = position.to(weight.device), distinct.to(weight.device)
    sums = weight.new_zeros(2, count, weight.shape[1])
    sums[0].index_add_(0, position, weight)
    sums[1].index_add_(0, position, weighted)
    return distinct, sums[0], sums[1]


def _not_finite(table: LookupTable, target: Tensor, weight: Tensor, lr: float) -> NonFiniteError:
    names = {"target": target, "weight": weight, "learning rate": torch.tensor(lr)}
    names["stored value"] = table.values[: table.num_entries * table.columns]
    wrong = [name for name, tensor in names.items() if not bool(tensor.isfinite().all())]
    problem = f"a {wrong[0]} is" if wrong else "errors are too large, so that their squares are"
    return NonFiniteError(
        f"while a table of {table.quantity} was fitted, {problem} not finite; nothing was changed. "
        "Look at what the targets are computed from."
    )
