"""A table can be looked at, in any order, by programs and people."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rich.console import Console

from empo_core.types import Quantity, ValueQuery
from empo_lookup_tables.inspection import as_table, records
from empo_lookup_tables.table import LookupTable
from empo_testing.worlds import TinyWorld

Make = Callable[..., LookupTable]
Ask = Callable[..., ValueQuery]


def fitted(table: LookupTable, query: ValueQuery, values: list[list[float]]) -> LookupTable:
    target = torch.tensor(values)
    weight = torch.ones_like(target).masked_fill(target.isnan(), 0.0)
    table.regression(weight_decay=0.0, max_grad_norm=None).fit(query, target, weight, lr=1.0)
    return table


def test_there_is_one_record_per_value_that_was_learned(make: Make, ask: Ask) -> None:
    nan = float("nan")
    table = fitted(make("q_r"), ask([1, 3, 1], [1, 2, 1]), [[-2.0, nan], [nan, -1.0], [-4.0, nan]])
    found = records(table)
    assert found.dtype.names == ("entry", "state", "steps_left", "action", "value", "count")
    assert found["state"].tolist() == [[1, 7], [3, 7]]
    others = found[["entry", "steps_left", "action", "value", "count"]]
    assert others.tolist() == [(0, 1, 0, -3.0, 2.0), (1, 2, 1, -1.0, 1.0)]


@pytest.mark.parametrize(
    ("quantity", "fields", "about"),
    [
        ("v_h_e", ("human", "goal"), (2, 2)),
        ("x_h", ("human",), (2,)),
        ("u_r", (), ()),
    ],
)
def test_records_say_who_and_what_they_are_about(
    make: Make, ask: Ask, quantity: Quantity, fields: tuple[str, ...], about: tuple[int, ...]
) -> None:
    value = -0.5 if quantity == "u_r" else 0.5
    (found,) = records(fitted(make(quantity), ask([1], goal=[2], human=[2]), [[value]]))
    assert tuple(found[field] for field in fields) == about
    named = {"entry", "state", "steps_left", "value", "count"}
    assert set(found.dtype.names) == named | set(fields)
    assert found["value"] == value


def test_records_come_in_the_wanted_order_and_number(make: Make, ask: Ask) -> None:
    table = fitted(make(), ask([1, 2, 3, 3]), [[-5.0], [-9.0], [-7.0], [-7.0]])
    assert records(table, order="value")["value"].tolist() == [-9.0, -7.0, -5.0]
    assert records(table, order="value", descending=True, limit=2)["value"].tolist() == [-5.0, -7.0]
    assert records(table, order="count", descending=True)["count"].tolist() == [2.0, 1.0, 1.0]
    assert records(table, limit=0).tolist() == []
    assert records(make()).tolist() == []


def test_an_order_that_the_table_lacks_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match=r"v_r.*'goal'"):
        records(make("v_r"), order="goal")
    with pytest.raises(ValueError, match="'steps_left'"):
        records(make("v_r", include_time=False), order="steps_left")


def text_of(table: LookupTable, **options: object) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(as_table(table, **options))
    return capture.get()


def test_people_read_names(make: Make, ask: Ask) -> None:
    table = fitted(make("v_h_e"), ask([1], goal=[2]), [[0.25]])
    text = text_of(table)
    for shown in ("v_h_e: 1 entries", "1 7", "shouter", "inside", "0.25"):
        assert shown in text
    text = text_of(fitted(make("q_r"), ask([1]), [[-2.5, -3.5]]), order="value")
    assert text.index("open") < text.index("wait")


def test_people_read_what_the_world_says_about_a_state(make: Make) -> None:
    world = TinyWorld()
    query = ValueQuery(world.initial_state()[None], torch.tensor([3]))
    table = fitted(make(), query, [[-2.0]])
    assert world.describe(world.initial_state()) in text_of(table, describe=world.describe)
