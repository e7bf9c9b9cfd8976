"""Values of states in a table that grows as they are fitted."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor, nn

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols import Regression, ValueNetwork
from empo_core.types import Fit, Quantity, ValueQuery, WorldSpec
from empo_lookup_tables.kernels import (
    REFUSED,
    UNKNOWN,
    Outcome,
    Questions,
    Rates,
    fit_lines,
    lines_of,
)
from empo_lookup_tables.keys import Keys, has_unknown
from empo_lookup_tables.plugin import LookupParams
from empo_lookup_tables.rules import Adam, Rule, RunningMean, Step, UniqueEntries, grown
from empo_worlds.row_table import RowTable

DEFAULTS: dict[Quantity, float] = {
    "q_r": -1.0,
    "v_h_e": 0.5,
    "x_h": 0.5,
    "u_r": -2.0,
    "v_r": -1.0,
}
"""Default value of an unknown key; a goal that was never seen may be possible."""
BOUNDS: dict[Quantity, tuple[float | None, float | None]] = {
    "q_r": (None, -1e-10),
    "v_h_e": (0.0, 1.0),
    "x_h": (1e-10, None),
    "u_r": (None, -1e-10),
    "v_r": (None, -1e-10),
}
"""Lowest and highest answer; the strict bounds of the theory leave room for a reciprocal."""

_ENTRIES = 256
"""For how many entries a new table has room."""


class LookupTable(ValueNetwork):
    """One of Q_r, V_h^e, X_h, U_r, V_r as a table keyed by state and remaining steps.

    An entry belongs to one key and has a *line* of values for each goal (V_h^e) or human (X_h),
    else a single one: line ``entry * columns + column``. All lines lie in one tensor. The keys
    stay in the memory of the CPU, the values lie on any device.

    Reading an unknown key gives the default and stores nothing, with one exception: in training
    mode with gradients enabled unknown keys get an entry, for else nothing could be trained.
    Entries that were only asked about are not saved.

    Attributes:
        values: One line per row; rows behind ``num_entries * columns`` are spare.
        counts: The total weight of the targets that each value was fitted to.
        columns: Lines per entry.
        default: The answer to unknown keys.
    """

    is_table = True
    values: Float[nn.Parameter, "line output"]
    counts: Float[Tensor, "line output"]

    def __init__(self, params: LookupParams, spec: WorldSpec, quantity: Quantity) -> None:
        super().__init__()
        self.quantity = quantity
        self.spec = spec
        self.params = params
        self.default = _checked_default(params, quantity)
        self.columns = {"v_h_e": len(spec.goals), "x_h": len(spec.humans)}.get(quantity, 1)
        if not self.columns:
            subject = "goals" if quantity == "v_h_e" else "humans"
            raise ConfigError(f"{spec.name!r} has no {subject}, so there is no {quantity} to learn")
        outputs = spec.num_robot_actions if quantity == "q_r" else 1
        self.values = nn.Parameter(torch.full((_ENTRIES * self.columns, outputs), self.default))
        self.register_buffer("counts", torch.zeros_like(self.values), persistent=False)
        self._keys = Keys(spec.state_words, spec.state_dtype, include_time=params.include_time)
        self._columns_of = np.arange(self.columns)
        if quantity == "x_h":
            self._columns_of = np.full(len(spec.agents), -1)
            self._columns_of[list(spec.humans)] = np.arange(self.columns)
        self._some_were_only_asked_about = False

    @property
    def num_entries(self) -> int:
        """Number of keys with an entry."""
        return len(self._keys)

    @property
    def bytes_per_entry(self) -> float:
        """Bytes per entry now, spare room and hash table included; 0 while there is none."""
        return self.memory_bytes() / self.num_entries if self.num_entries else 0.0

    def memory_bytes(self) -> int:
        """Bytes taken by keys, hash table, values and counts, spare room included."""
        return self._keys.memory_bytes + self.values.nbytes + self.counts.nbytes

    @property
    def arrays(self) -> tuple[Float[np.ndarray, "line output"], Float[np.ndarray, "line output"]]:
        """Values and counts on a CPU, in the same memory; until the table grows."""
        return self.values.detach().numpy(), self.counts.numpy()

    def states(self) -> Int[Tensor, "entry word"]:
        """The state of each entry."""
        return self._keys.states()

    def steps_left(self) -> Int[Tensor, " entry"] | None:
        """The remaining steps of each entry; None where time is not in the keys."""
        return self._keys.steps_left()

    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression:
        """The rules of ``params``; see ``TableRegression``."""
        return TableRegression(self, weight_decay=weight_decay, max_grad_norm=max_grad_norm)

    def forward(self, query: ValueQuery) -> Float[Tensor, "query output"]:
        """The value of each question, within the bounds of the quantity."""
        if not torch.is_grad_enabled():
            return self.bounded(self.stored(self.lines(query)))
        before = self.num_entries
        raw = self.stored(self.lines(query, grow=self.training))
        self._some_were_only_asked_about |= self.num_entries > before
        # A gradient also reaches values out of bounds, so that they can come back.
        return self.bounded(raw).detach() + (raw - raw.detach())

    def lines(self, query: ValueQuery, *, grow: bool = False) -> Int[Tensor, " query"]:
        """The line of each question, on the CPU; negative where there is none.

        Args:
            query: The questions.
            grow: Add an entry for each unknown key.
        """
        if grow:
            before = self.num_entries
            entry = self._keys.number(query.states, query.steps_left)
            self._add_defaults(before)
        else:
            entry = self._keys.find(query.states, query.steps_left, query.memo)
        if self.quantity not in ("v_h_e", "x_h"):
            return entry if query.state is None else entry.index_select(0, query.state.cpu())
        state = torch.arange(entry.shape[0]) if query.state is None else query.state.cpu()
        return self._lines_of(entry, state, query)

    def stored(self, lines: Int[Tensor, " query"]) -> Float[Tensor, "query output"]:
        """The entries on some lines; the default where a line is negative."""
        if not has_unknown(lines):
            return self._selected(lines)
        raw = self._selected(lines.clamp(min=0))
        return raw.masked_fill((lines < 0)[:, None].to(raw.device), self.default)

    def bounded(self, values: Float[Tensor, "query output"]) -> Float[Tensor, "query output"]:
        """The nearest values within the bounds of the quantity."""
        low, high = BOUNDS[self.quantity]
        return values.clamp(low, high)

    def saved(self, rows: Float[Tensor, "line output"]) -> Float[Tensor, "fitting output"]:
        """Those rows, of one per line, whose entries are saved; a view where that is all."""
        outputs = rows.shape[1]
        entries = rows.detach()[: self.num_entries * self.columns]
        entries = entries.view(self.num_entries, self.columns * outputs)
        positions = self._fitted_positions()
        return (entries if positions is None else entries[positions.to(rows.device)]).view(
            -1, outputs
        )

    def _selected(self, lines: Int[Tensor, " query"]) -> Float[Tensor, "query output"]:
        lines = lines.to(self.values.device)
        if self.values.shape[1] > 1:
            return self.values.index_select(0, lines)
        # Single numbers are taken from a vector five times as fast as from a column.
        return self.values.view(-1).index_select(0, lines)[:, None]

    def _lines_of(
        self, entry: Int[Tensor, " state"], state: Int[Tensor, " query"], query: ValueQuery
    ) -> Int[Tensor, " query"]:
        """The line of each question about a goal or human, given the entries of states."""
        name = "goal" if self.quantity == "v_h_e" else "human"
        index = query.goal if name == "goal" else query.human
        if index is None or index.shape[0] != len(query):
            number = "none" if index is None else len(index)
            raise ValueError(
                f"a table of {self.quantity} needs the {name} of each of {len(query)} questions, "
                f"and there is {number}; give ValueQuery.{name}"
            )
        # An unknown entry is -1, so its lines are -columns ... -1.
        lines = np.empty(len(query), np.int64)
        column = index.to("cpu", torch.int64).contiguous().numpy()
        wrong = lines_of(
            entry.numpy(), state.contiguous().numpy(), column, self._columns_of, self.columns, lines
        )
        if wrong < 0:
            return torch.from_numpy(lines)
        entry.index_select(0, state[wrong : wrong + 1])  # Refused if it is the state that is wrong.
        if 0 <= column[wrong] < len(self._columns_of):
            raise ValueError(f"X_h is asked of a robot; the humans are agents {self.spec.humans}")
        raise ValueError(
            f"there is no {name} {column[wrong]}; {name}s are in [0, {len(self._columns_of)})"
        )

    def _add_defaults(self, before: int) -> None:
        """Give default values to the entries from number ``before`` on."""
        if before < self.num_entries:
            self._make_room()
            new = slice(before * self.columns, self.num_entries * self.columns)
            self.values.data[new] = self.default
            self.counts[new] = 0

    def _make_room(self) -> None:
        """Have a line for each column of each entry."""
        used = self.num_entries * self.columns
        if used > len(self.values):
            rows = max(used, 2 * len(self.values))
            # The parameter stays the same object, as who holds it expects.
            self.values.grad = None
            self.values.data = grown(self.values.data, rows)
            self.counts = grown(self.counts, rows)

    def _fitted_positions(self) -> Int[Tensor, " fitting"] | None:
        """The entries that are saved: those that were not only asked about; None means all."""
        if not self._some_were_only_asked_about:
            return None
        used = self.num_entries * self.columns
        learned = (self.values[:used] != self.default) | (self.counts[:used] > 0)
        per_entry = learned.view(self.num_entries, self.columns * learned.shape[1])
        return per_entry.any(1).nonzero()[:, 0].cpu()

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        positions, states, steps_left = self._fitted_positions(), self.states(), self.steps_left()
        saved = {
            "states": states if positions is None else states[positions],
            "values": self.saved(self.values),
            "counts": self.saved(self.counts),
        }
        if steps_left is not None:
            saved["steps_left"] = steps_left if positions is None else steps_left[positions]
        destination |= {prefix + name: tensor for name, tensor in saved.items()}

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: dict[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        names = ["states", "values", "counts"] + ["steps_left"] * self.params.include_time
        present = {key for key in state_dict if key.startswith(prefix)}
        expected = {prefix + name for name in names}
        missing_keys += sorted(expected - present)
        unexpected_keys += sorted(present - expected)
        if expected - present:
            return
        saved = {name: state_dict[prefix + name] for name in names}
        values, outputs = saved["values"], self.values.shape[1]
        shape = (len(saved["states"]) * self.columns, outputs)
        times = saved.get("steps_left", saved["states"])
        if not values.shape == saved["counts"].shape == shape or len(times) != len(saved["states"]):
            error_msgs.append(
                f"{prefix}values have shape {list(values.shape)}, but {len(saved['states'])} "
                f"entries of this {self.quantity} table have {list(shape)}, and as many counts and "
                "times: it belongs to another world or quantity"
            )
            return
        try:
            self._keys.replace(saved["states"], saved.get("steps_left"))
        except ValueError as error:
            error_msgs.append(f"{prefix}states cannot be used: {error}")
            return
        self._some_were_only_asked_about = False
        self._make_room()
        self.values.data[: shape[0]].copy_(values)
        self.counts[: shape[0]].copy_(saved["counts"])


def _checked_default(params: LookupParams, quantity: Quantity) -> float:
    if params.default is None:
        return DEFAULTS[quantity]
    low, high = BOUNDS[quantity]
    if (low is not None and params.default < low) or (high is not None and params.default > high):
        low_text = "-inf" if low is None else f"{low:g}"
        high_text = "inf" if high is None else f"{high:g}"
        raise ConfigError(
            f"default {params.default:g} is no possible {quantity}: choose a number from "
            f"{low_text} to {high_text}, or null for {DEFAULTS[quantity]:g}"
        )
    return params.default


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
