"""A lookup table as a table: records for programs, rows for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, Shaped
from rich.table import Table
from torch import Tensor

from empo_core.tables import FittingTable
from empo_core.types import WorldSpec
from empo_lookup_tables.table import LookupTable

Order = Literal["entry", "steps_left", "human", "goal", "action", "value", "count"]
Describe = Callable[[Tensor], str]
"""From a state row to one line of text."""


def records(
    table: LookupTable,
    *,
    order: Order = "entry",
    descending: bool = False,
    limit: int | None = None,
) -> Shaped[np.ndarray, " record"]:
    """The entries of a table as a structured array with one record per value.

    The fields are ``entry`` (in order of discovery), ``state`` (its words), ``steps_left`` where
    time is in the keys, ``human`` (agent index) for X_h and V_h^e, ``goal`` (position on the
    ``goal`` axis) for V_h^e, ``action`` (joint robot action) for Q_r, ``value`` and ``count``
    (the total weight of the targets it was fitted to). Values that nothing was learned about are
    left out: they are the default.

    Args:
        table: The table.
        order: Sort by this field; records that are equal in it stay in order of entry.
        descending: Largest first.
        limit: Only so many, from the start.

    Raises:
        ValueError: if the table has no such field.
    """
    used = table.num_entries * table.columns
    values, counts = table.values.detach()[:used], table.counts[:used]
    learned = ((values != table.default) | (counts > 0)).cpu()
    line, output = learned.nonzero(as_tuple=True)
    fields = {"entry": line // table.columns} | _indices(table, line % table.columns, output)
    fields |= {"value": table.bounded(values).cpu()[learned], "count": counts.cpu()[learned]}
    times = table.steps_left()
    if times is not None:
        fields["steps_left"] = times[fields["entry"]]
    if order not in fields:
        raise ValueError(
            f"a table of {table.quantity} cannot be sorted by {order!r}; "
            f"it has {', '.join(sorted(fields))}"
        )
    selected = torch.argsort(fields[order], descending=descending, stable=True)[:limit]
    return _structured(table.states(), {name: part[selected] for name, part in fields.items()})


def as_table(
    table: LookupTable,
    *,
    order: Order = "entry",
    descending: bool = False,
    limit: int | None = 20,
    describe: Describe | None = None,
) -> Table:
    """The entries of a table for a terminal; see ``records``.

    Args:
        table: The table.
        order: Sort by this field.
        descending: Largest first.
        limit: Only so many rows, from the start; None shows all.
        describe: Says what a state is, e.g. ``world.describe``; None shows its words.
    """
    rows = records(table, order=order, descending=descending, limit=limit)
    names = [name for name in rows.dtype.names or () if name != "entry"]
    printed = FittingTable(title=f"{table.quantity}: {table.num_entries} entries")
    for name in names:
        printed.add_column(name, justify="right" if name in _NUMBERS else "left")
    for record in rows:
        printed.add_row(*(_text(table.spec, name, record[name], describe) for name in names))
    return printed


_NUMBERS = ("steps_left", "value", "count")
_FIELDS = ("entry", "state", "steps_left", "human", "goal", "action", "value", "count")


def _indices(
    table: LookupTable, column: Int[Tensor, " record"], output: Int[Tensor, " record"]
) -> dict[str, Int[Tensor, " record"]]:
    """State, human and goal of each value."""
    if table.quantity == "q_r":
        return {"action": output}
    if table.quantity == "x_h":
        return {"human": torch.tensor(table.spec.humans)[column]}
    if table.quantity == "v_h_e":
        humans = torch.tensor([goal.human for goal in table.spec.goals])
        return {"human": humans[column], "goal": column}
    return {}


def _structured(
    states: Int[Tensor, "entry word"], fields: dict[str, Shaped[Tensor, " record"]]
) -> Shaped[np.ndarray, " record"]:
    arrays = {name: part.numpy() for name, part in fields.items()}
    arrays["state"] = states.numpy()[arrays["entry"]]
    names = [name for name in _FIELDS if name in arrays]
    kinds = [(name, arrays[name].dtype, arrays[name].shape[1:]) for name in names]
    result = np.empty(len(arrays["entry"]), kinds)
    for name in names:
        result[name] = arrays[name]
    return result


def _text(
    spec: WorldSpec,
    name: str,
    value: Shaped[np.ndarray, " word"] | np.generic,
    describe: Describe | None,
) -> str:
    if name == "state":
        row = torch.from_numpy(np.array(value))
        return " ".join(map(str, row.tolist())) if describe is None else describe(row)
    if name == "human":
        return spec.agents[int(value)].name
    if name == "goal":
        return spec.goals[int(value)].name
    if name == "action":
        return ", ".join(_robot_actions(spec, int(value)))
    return f"{value:.6g}" if name in ("value", "count") else str(value)


def _robot_actions(spec: WorldSpec, joint: int) -> Sequence[str]:
    """The action of each robot; robot 0 counts fastest."""
    names = []
    for robot in spec.robots:
        actions = spec.agents[robot].actions
        names.append(actions[joint % len(actions)])
        joint //= len(actions)
    return names
