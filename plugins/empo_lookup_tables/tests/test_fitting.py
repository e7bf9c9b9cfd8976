"""Tables are fitted as a dictionary of plain numbers would be, whatever else the batch holds."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.types import Quantity, ValueQuery
from empo_lookup_tables.plugin import LookupParams
from empo_lookup_tables.table import BOUNDS, LookupTable
from empo_testing.worlds import TinyWorld

Make = Callable[..., LookupTable]
Ask = Callable[..., ValueQuery]
SPEC = TinyWorld().spec
RULES = ["running-mean", "step"]


class PlainTable:
    """The same rules on a dictionary, one number after the other, in double precision."""

    def __init__(self, table: LookupTable, weight_decay: float) -> None:
        self.params, self.default, self.quantity = table.params, table.default, table.quantity
        self.weight_decay = weight_decay
        self.values: dict[Any, float] = {}
        self.counts: dict[Any, float] = defaultdict(float)

    def keys(self, query: ValueQuery, outputs: int) -> list[list[Any]]:
        query = query.spread()
        keys = []
        for i in range(len(query)):
            key = [tuple(query.states[i].tolist())]
            if self.params.include_time:
                key.append(int(query.steps_left[i]))
            if self.quantity == "v_h_e":
                key.append(int(query.goal[i]))
            if self.quantity == "x_h":
                key.append(int(query.human[i]))
            keys.append([(*key, output) for output in range(outputs)])
        return keys

    def read(self, query: ValueQuery, outputs: int) -> list[list[float]]:
        keys = self.keys(query, outputs)
        return [[self.values.get(key, self.default) for key in row] for row in keys]

    def fit(
        self, query: ValueQuery, target: Tensor, weight: Tensor, lr: float
    ) -> tuple[float, float]:
        total = float(weight.double().sum())
        loss = 0.0
        sums: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
        keys = self.keys(query, target.shape[1])
        for row, targets, weights in zip(keys, target.tolist(), weight.tolist(), strict=True):
            for key, t, w in zip(row, targets, weights, strict=True):
                if w > 0:
                    loss += w * (self.values.get(key, self.default) - t) ** 2 / total
                    sums[key][0] += w
                    sums[key][1] += w * t
        gradient = {
            key: 2 * (w * self.values.get(key, self.default) - wt) / total
            for key, (w, wt) in sums.items()
        }
        norm = math.sqrt(sum(g * g for g in gradient.values()))
        for key, (w, wt) in sums.items():
            self.move(key, w, wt / w, lr)
        return loss, norm

    def move(self, key: Any, w: float, mean: float, lr: float) -> None:
        value = self.values.get(key, self.default)
        self.counts[key] += w
        decay = lr * self.weight_decay * (value - self.default)
        if self.params.rule == "running-mean":
            value += max(w / self.counts[key], self.params.min_rate or 0.0) * (mean - value)
        else:
            value += lr * (mean - value) - decay
        low, high = BOUNDS[self.quantity]
        self.values[key] = min(max(value, -math.inf if low is None else low), high or math.inf)


def everything(quantity: Quantity) -> ValueQuery:
    """Every key that a drawn batch may ask about."""
    grid = torch.cartesian_prod(torch.arange(4), torch.arange(1, 4), torch.arange(3))
    return as_query(grid, quantity, shared=False)


def as_query(rows: Tensor, quantity: Quantity, *, shared: bool) -> ValueQuery:
    """Questions about (state, time, goal or human); shared ones go through ``state``."""
    goal = rows[:, 2] if quantity == "v_h_e" else None
    human = (rows[:, 2] > 0).long() * 2 if quantity == "x_h" else None
    keys, state = rows[:, :2], None
    if shared:
        keys, state = torch.unique(keys, dim=0, return_inverse=True)
    states = torch.stack([keys[:, 0], 3 - keys[:, 0]], 1).to(torch.int16)
    return ValueQuery(states, keys[:, 1], human, goal, state)


batches = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 1000), st.booleans()), min_size=1, max_size=6
)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    quantity=st.sampled_from(list(BOUNDS)),
    rule=st.sampled_from(RULES),
    include_time=st.booleans(),
    min_rate=st.sampled_from([0.0, 0.3]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    batches=batches,
)
def test_a_table_learns_what_a_dictionary_learns(
    quantity: Quantity,
    rule: str,
    include_time: bool,
    min_rate: float,
    weight_decay: float,
    batches: list[tuple[int, int, bool]],
) -> None:
    means = rule == "running-mean"
    params = {"include_time": include_time, "rule": rule} | (
        {"min_rate": min_rate} if means else {}
    )
    weight_decay = 0.0 if means else weight_decay
    table = LookupTable(LookupParams.model_validate(params), SPEC, quantity).double()
    regression = table.regression(weight_decay=weight_decay, max_grad_norm=0.2)
    plain = PlainTable(table, weight_decay)
    outputs = table.values.shape[1]
    for size, seed, shared in batches:
        generator = torch.Generator().manual_seed(seed)
        sizes = torch.tensor([4, 3, 3])
        rows = (torch.rand((size, 3), generator=generator) * sizes).long() + torch.tensor([0, 1, 0])
        query = as_query(rows, quantity, shared=shared)
        inside = torch.rand((size, outputs), generator=generator)
        target = inside if quantity in ("v_h_e", "x_h") else -0.1 - 3 * inside
        weight = torch.rand((size, outputs), generator=generator)
        unused = torch.rand((size, outputs), generator=generator) < 0.3
        weight, target = weight.masked_fill(unused, 0.0), target.masked_fill(unused, math.nan)
        loss, norm = plain.fit(query, target, weight, 0.1)
        fit = regression.fit(query, target, weight, lr=0.1)
        assert float(fit.loss) == pytest.approx(loss, rel=1e-12, abs=1e-12)
        assert float(fit.gradient_norm) == pytest.approx(norm, rel=1e-12, abs=1e-12)
        with torch.no_grad():
            answers = table(everything(quantity))
        expected = torch.tensor(plain.read(everything(quantity), outputs), dtype=torch.float64)
        torch.testing.assert_close(answers, expected, rtol=1e-12, atol=1e-12)
    known = {key[:2] if include_time else key[:1] for key in plain.values}
    assert len(known) <= table.num_entries <= 12
    assert float(table.counts.sum()) == pytest.approx(sum(plain.counts.values()), rel=1e-12)


def test_a_running_mean_is_the_mean_of_all_targets(make: Make, ask: Ask) -> None:
    """By hand: one target, then two in one batch, then one that weighs 4 times as much."""
    table = make("v_r", min_rate=0.0)
    fit = table.regression(weight_decay=0.0, max_grad_norm=1e-3).fit
    mean = []
    for targets, weights in (([-3.0], [1.0]), ([-6.0, -9.0], [1.0, 1.0]), ([-20.0], [4.0])):
        query = ask([5] * len(targets))
        fit(query, torch.tensor([targets]).T, torch.tensor([weights]).T, lr=0.5)
        mean.append(float(table(ask([5])).detach()))
    assert mean == [-3.0, -6.0, -14.0]
    assert table.counts[0].tolist() == [7.0]


def test_a_running_mean_stays_exact_over_many_targets(make: Make, ask: Ask) -> None:
    targets = -10 * torch.rand(500, 1, generator=torch.Generator().manual_seed(0))
    table = make("v_r", min_rate=0.0)
    regression = table.regression(weight_decay=0.0, max_grad_norm=None)
    for target in targets:
        regression.fit(ask([1]), target[:, None], torch.ones(1, 1), lr=1e-3)
    assert float(table(ask([1])).detach()) == pytest.approx(
        float(targets.double().mean()), rel=1e-5
    )


def test_each_output_counts_for_itself(make: Make, ask: Ask) -> None:
    table = make("q_r", min_rate=0.0)
    fit = table.regression(weight_decay=0.0, max_grad_norm=None).fit
    nan = math.nan
    fit(ask([1]), torch.tensor([[-5.0, nan]]), torch.tensor([[1.0, 0.0]]), lr=1.0)
    assert table(ask([1])).tolist() == [[-5.0, -1.0]]
    fit(ask([1]), torch.tensor([[-7.0, -3.0]]), torch.tensor([[1.0, 1.0]]), lr=1.0)
    assert table(ask([1])).tolist() == [[-6.0, -3.0]]


@pytest.mark.parametrize("rule", RULES)
def test_growing_keeps_what_was_remembered(make: Make, ask: Ask, rule: str) -> None:
    tables = [make("q_r", rule=rule), make("q_r", rule=rule)]
    regressions = [t.regression(weight_decay=0.0, max_grad_norm=None) for t in tables]
    target, one = torch.tensor([[-2.0, -3.0]]), torch.ones(1, 2)
    for number, regression in enumerate(regressions):
        for step in range(3):
            regression.fit(ask([1]), target * (step + 1), one, lr=0.1)
        if number:
            many = ask(range(2, 3000))
            regression.fit(many, target.repeat(2998, 1), one.repeat(2998, 1), lr=0.1)
        regression.fit(ask([1]), target, one, lr=0.1)
    assert torch.equal(tables[0](ask([1])), tables[1](ask([1])))
    assert tables[1].num_entries == 2999


@pytest.mark.parametrize("rule", RULES)
def test_a_restored_table_goes_on_exactly_as_before(make: Make, ask: Ask, rule: str) -> None:
    generator = torch.Generator().manual_seed(0)

    def lesson() -> tuple[ValueQuery, Tensor, Tensor]:
        query = ask(torch.randint(0, 600, (64,), generator=generator).tolist())
        return query, -torch.rand((64, 2), generator=generator), torch.ones(64, 2)

    table = make("q_r", rule=rule)
    regression = table.regression(weight_decay=0.0, max_grad_norm=1.0)
    for _ in range(10):
        regression.fit(*lesson(), lr=0.1)
    table(ask([700, 3, 701]))  # Asks about some without fitting them.
    other = make("q_r", rule=rule)
    copied = other.regression(weight_decay=0.0, max_grad_norm=1.0)
    copied.fit(*lesson(), lr=0.1)  # It has other entries, in another order.
    other.load_state_dict(table.state_dict())
    copied.load_state_dict(regression.state_dict())
    for _ in range(5):
        query, target, weight = lesson()
        regression.fit(query, target, weight, lr=0.1)
        copied.fit(query, target, weight, lr=0.1)
        assert torch.equal(table(query), other(query))
    assert regression.state_dict() == copied.state_dict() == {}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"target": math.nan}, "target"),
        ({"target": -math.inf}, "target"),
        ({"weight": math.nan}, "weight"),
        ({"weight": math.inf}, "weight"),
        ({"lr": math.nan}, "learning rate"),
        ({"target": -1e30}, "too large"),
    ],
)
def test_what_is_not_finite_is_named_and_changes_nothing(
    make: Make, ask: Ask, rule: str, bad: dict[str, float], named: str
) -> None:
    table = make("q_r", rule=rule)
    regression = table.regression(weight_decay=0.0, max_grad_norm=1.0)
    regression.fit(ask([1, 2]), -torch.ones(2, 2) * 3, torch.ones(2, 2), lr=0.5)
    before = copy.deepcopy(table.state_dict() | regression.state_dict())
    target, weight = -torch.ones(2, 2), torch.ones(2, 2)
    target[1, 1], weight[1, 1] = bad.get("target", -1.0), bad.get("weight", 1.0)
    with pytest.raises(NonFiniteError, match=rf"q_r.*{named}"):
        regression.fit(ask([2, 9]), target, weight, lr=bad.get("lr", 0.5))
    after = table.state_dict() | regression.state_dict()
    assert table.num_entries == 2
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name


def test_a_stored_value_that_is_not_finite_is_named(make: Make, ask: Ask) -> None:
    table = make()
    regression = table.regression(weight_decay=0.0, max_grad_norm=None)
    regression.fit(ask([1]), -torch.ones(1, 1), torch.ones(1, 1), lr=0.5)
    table.load_state_dict(table.state_dict() | {"values": torch.tensor([[math.nan]])})
    with pytest.raises(NonFiniteError, match="stored value"):
        regression.fit(ask([1]), -torch.ones(1, 1), torch.ones(1, 1), lr=0.5)


@pytest.mark.parametrize("rule", RULES)
def test_without_weight_nothing_moves(make: Make, ask: Ask, rule: str) -> None:
    table = make("q_r", rule=rule)
    regression = table.regression(weight_decay=0.0, max_grad_norm=1.0)
    for query in (ask([1, 2]), ask([])):
        nothing = torch.zeros(len(query), 2)
        fit = regression.fit(query, nothing + math.nan, nothing, lr=0.1)
        assert (float(fit.loss), float(fit.gradient_norm)) == (0.0, 0.0)
    assert table.num_entries == 0


def test_decay_draws_fitted_values_towards_the_default(make: Make, ask: Ask) -> None:
    table = make("v_r", rule="step", default=-4.0)
    regression = table.regression(weight_decay=0.5, max_grad_norm=None)
    for _ in range(200):
        regression.fit(ask([1]), torch.tensor([[-7.0]]), torch.ones(1, 1), lr=0.5)
    # Where the pull of 1 to -7 and of 0.5 to -4 are equal.
    assert float(table(ask([1])).detach()) == pytest.approx(-6.0)


def test_a_running_mean_refuses_decay(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"weight_decay 0\.1.*'step'"):
        make().regression(weight_decay=0.1, max_grad_norm=None)


def test_a_rule_without_min_rate_refuses_it() -> None:
    with pytest.raises(ValueError, match=r"rule 'step' .*min_rate"):
        LookupParams(rule="step", min_rate=0.1)


def test_expectations_are_taken_over_whole_and_samples_in_part(make: Make) -> None:
    regression = make(rule="step").regression(weight_decay=0.0, max_grad_norm=None)
    assert regression.default_lr(sampled=False) == 1.0
    assert regression.default_lr(sampled=True) == 0.3
