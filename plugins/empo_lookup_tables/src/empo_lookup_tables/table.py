"""Values of states in a table that grows as they are fitted."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols import Regression, ValueNetwork
from empo_core.trees import StateDict
from empo_core.types import Fit, Quantity, ValueQuery, WorldSpec
from empo_lookup_tables.keys import Keys
from empo_lookup_tables.plugin import LookupParams

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

MIN_RATE = 1e-6
"""Least share of the way that a running mean goes, unless its params say otherwise."""

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
        self._columns_of = torch.arange(self.columns)
        if quantity == "x_h":
            self._columns_of = torch.full((len(spec.agents),), -1)
            self._columns_of[list(spec.humans)] = torch.arange(self.columns)
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

    def states(self) -> Int[Tensor, "entry word"]:
        """The state of each entry."""
        return self._keys.states()

    def steps_left(self) -> Int[Tensor, " entry"] | None:
        """The remaining steps of each entry; None where time is not in the keys."""
        return self._keys.steps_left()

    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression:
        """The rule of ``params``, which cannot overshoot and needs no limit of gradients."""
        return TableRegression(self, weight_decay=weight_decay)

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
        column = self._column(query)
        if grow:
            before = self.num_entries
            entry = self._keys.number(query.states, query.steps_left)
            self._add_defaults(before)
        else:
            entry = self._keys.find(query.states, query.steps_left)
        if query.state is not None:
            entry = entry.index_select(0, query.state.cpu())
        # An unknown entry is -1, so its lines are -columns ... -1.
        return entry if column is None else entry * self.columns + column

    def _column(self, query: ValueQuery) -> Int[Tensor, " query"] | None:
        """The column of each question's goal or human; None where entries have one column only.

        Raises:
            ValueError: if there is no such goal or human, or not one for each question.
        """
        name, index = "goal", query.goal
        if self.quantity == "x_h":
            name, index = "human", query.human
        elif self.quantity != "v_h_e":
            return None
        questions = (query.steps_left if query.state is None else query.state).shape[0]
        if index is None or index.shape[0] != questions:
            number = "none" if index is None else len(index)
            raise ValueError(
                f"a table of {self.quantity} needs the {name} of each of {questions} questions, "
                f"and there is {number}; give ValueQuery.{name}"
            )
        index, end = index.cpu(), self._columns_of.shape[0]
        if questions and not 0 <= int(index.min()) <= int(index.max()) < end:
            wrong = int(index[(index < 0) | (index >= end)][0])
            raise ValueError(f"there is no {name} {wrong}; {name}s are in [0, {end})")
        column = self._columns_of[index]
        if name == "human" and bool((column < 0).any()):
            raise ValueError(f"X_h is asked of a robot; the humans are agents {self.spec.humans}")
        return column

    def stored(self, lines: Int[Tensor, " query"]) -> Float[Tensor, "query output"]:
        """The values on some lines; the default where a line is negative."""
        lines = lines.to(self.values.device)
        is_known = not lines.numel() or int(lines.min()) >= 0
        line = lines if is_known else lines.clamp(min=0)
        # Single numbers are taken from a vector five times as fast as from a column.
        if self.values.shape[1] == 1:
            raw = self.values.view(-1).index_select(0, line)[:, None]
        else:
            raw = self.values.index_select(0, line)
        return raw if is_known else raw.masked_fill((lines < 0)[:, None], self.default)

    def bounded(self, values: Float[Tensor, "query output"]) -> Float[Tensor, "query output"]:
        """The nearest values within the bounds of the quantity."""
        low, high = BOUNDS[self.quantity]
        return values.clamp(low, high)

    def _selected(self, lines: Int[Tensor, " query"]) -> Float[Tensor, "query output"]:
        lines = lines.to(self.values.device)
        if self.values.shape[1] > 1:
            return self.values.index_select(0, lines)
        # Single numbers are taken from a vector five times as fast as from a column.
        return self.values.view(-1).index_select(0, lines)[:, None]

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
            more = self.values.data.new_zeros(rows - len(self.values), self.values.shape[1])
            self.values.data = torch.cat([self.values.data, more])
            self.counts = torch.cat([self.counts, more])

    def _fitted_positions(self) -> Int[Tensor, " fitting"] | None:
        """The entries that are saved: those that were not only asked about; None means all."""
        if not self._some_were_only_asked_about:
            return None
        used = self.num_entries * self.columns
        learned = (self.values[:used] != self.default) | (self.counts[:used] > 0)
        per_entry = learned.view(self.num_entries, self.columns * learned.shape[1])
        return per_entry.any(1).nonzero()[:, 0].cpu()

    def _saved(
        self, rows: Float[Tensor, "line output"], positions: Int[Tensor, " fitting"] | None
    ) -> Float[Tensor, "_line output"]:
        """Those rows, of one per line, whose entries are saved; a view where that is all."""
        used = rows[: self.num_entries * self.columns]
        if positions is None:
            return used
        entries = used.view(self.num_entries, -1)[positions.to(rows.device)]
        return entries.view(-1, rows.shape[1])

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        positions, states, steps_left = self._fitted_positions(), self.states(), self.steps_left()
        saved = {
            "states": states if positions is None else states[positions],
            "values": self._saved(self.values.detach(), positions),
            "counts": self._saved(self.counts, positions),
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
    """Fits one table, by the rule of its params; see ``fit`` for the equation.

    It remembers nothing beside the table. ``weight_decay`` draws fitted values back towards the
    default; a running mean, which would no longer be one, refuses it.
    """

    def __init__(self, table: LookupTable, *, weight_decay: float) -> None:
        if weight_decay and table.params.rule == "running-mean":
            raise ConfigError(
                f"weight_decay {weight_decay:g} has no meaning for a table of running means: set "
                "it to 0, or give the table rule 'step'"
            )
        self._table, self._weight_decay = table, weight_decay

    @torch.no_grad()
    def fit(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        *,
        lr: float,
    ) -> Fit:
        """Move values: ``v + rate (t - v) - lr weight_decay (v - default)``, within the bounds.

        ``t`` is the weighted mean of a value's targets in the batch. ``rate`` is the learning rate,
        or for a running mean ``max(w / W, min_rate)``: ``w`` is the weight of these targets and
        ``W`` that of all so far. Values without weight stay as they are.

        Raises:
            NonFiniteError: if a target, weight or the learning rate is not finite, or errors are
                too large to be squared; no answer changes.
        """
        table = self._table
        target, weight = target.to(table.values), weight.to(table.values)
        total = weight.sum()
        if total == 0 and math.isfinite(lr):
            return Fit(total, total)
        lines = table.lines(query)
        before = table.stored(lines)
        # Where nothing counts the target may be anything, also NaN.
        target = target.where(weight > 0, before)
        loss = (weight * (before - target).square()).sum() / total
        if not math.isfinite(loss) or not math.isfinite(lr):
            raise _not_finite(table, target, weight, lr)

        if int(lines.min()) < 0:
            lines = table.lines(query, grow=True)
        lines, position = torch.unique(lines, return_inverse=True)
        lines, position = lines.to(weight.device), position.to(weight.device)
        value = table.values.index_select(0, lines)
        zeros = torch.zeros_like(value)
        new_weight = zeros.index_add(0, position, weight)
        summed = zeros.index_add(0, position, weight * target)
        is_fitted = new_weight > 0
        mean = torch.where(is_fitted, summed / new_weight, value)
        all_weight = table.counts.index_select(0, lines) + new_weight
        if table.params.rule == "running-mean":
            min_rate = table.params.min_rate
            rate = (new_weight / all_weight).clamp(min=MIN_RATE if min_rate is None else min_rate)
            new = value.lerp(mean, rate)
        else:
            # Where the rate is 1, lerp gives the target itself, without a rounding error.
            new = value.lerp(mean, lr) - lr * self._weight_decay * (value - table.default)
        table.values.index_copy_(0, lines, torch.where(is_fitted, table.bounded(new), value))
        table.counts.index_copy_(0, lines, all_weight)
        gradient = new_weight * (value - mean) * (2 / total)
        return Fit(loss, torch.linalg.vector_norm(gradient))

    def default_lr(self, *, sampled: bool) -> float:
        """All of the way to an expectation, and a share of the way to a sample."""
        return 0.3 if sampled else 1.0

    def state_dict(self) -> StateDict:
        """Nothing: all that is remembered belongs to the table."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""


def _not_finite(table: LookupTable, target: Tensor, weight: Tensor, lr: float) -> NonFiniteError:
    names = {"target": target, "weight": weight, "learning rate": torch.tensor(lr)}
    names["stored value"] = table.values[: table.num_entries * table.columns]
    wrong = [name for name, tensor in names.items() if not bool(tensor.isfinite().all())]
    problem = f"a {wrong[0]} is" if wrong else "errors are too large, so that their squares are"
    return NonFiniteError(
        f"while a table of {table.quantity} was fitted, {problem} not finite; nothing was changed. "
        "Look at what the targets are computed from."
    )
