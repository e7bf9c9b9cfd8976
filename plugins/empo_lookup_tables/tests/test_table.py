"""Lookups in a table, its growth, and saving, restoring and copying it."""

from __future__ import annotations

import copy
import dataclasses
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from empo_core.errors import ConfigError
from empo_core.types import Quantity, ValueQuery, WorldSpec
from empo_lookup_tables.plugin import LookupParams
from empo_lookup_tables.table import LookupTable
from empo_testing.worlds import TinyWorld

Make = Callable[..., LookupTable]
Ask = Callable[..., ValueQuery]


def read(table: LookupTable, query: ValueQuery) -> list[list[float]]:
    with torch.no_grad():
        return table(query).tolist()


def learn(table: LookupTable, query: ValueQuery, values: list[list[float]]) -> None:
    target = torch.tensor(values)
    regression = table.regression(weight_decay=0.0, max_grad_norm=None)
    regression.fit(query, target, torch.ones_like(target), lr=1.0)


@pytest.mark.parametrize(
    ("quantity", "default"),
    [("q_r", -1.0), ("v_r", -1.0), ("u_r", -2.0), ("v_h_e", 0.5), ("x_h", 0.5)],
)
def test_unknown_keys_have_the_default_exactly_and_reading_adds_none(
    make: Make, ask: Ask, quantity: Quantity, default: float
) -> None:
    table = make(quantity)
    query = ask([1, 2], goal=[0, 2], human=[0, 2])
    answers = torch.tensor(read(table, query))
    assert torch.equal(answers, torch.full_like(answers, default))
    assert table.num_entries == 0
    learn(table, ask([1], goal=[0], human=[0]), [[default / 2] * answers.shape[1]])
    answers = torch.tensor(read(table, ask([3, 1], goal=[0, 1], human=[0, 2])))
    assert torch.equal(answers[0], torch.full_like(answers[0], default))
    assert table.num_entries == 1


def test_learners_can_tell_that_it_is_a_table(make: Make) -> None:
    assert make("q_r").is_table


def test_a_chosen_default_is_exact_too(make: Make, ask: Ask) -> None:
    assert read(make("v_h_e", default=0.5), ask([1], goal=[1])) == [[0.5]]


@pytest.mark.parametrize(
    ("quantity", "default", "allowed"),
    [
        ("q_r", 0.0, "-inf to -1e-10"),
        ("v_h_e", 1.5, "0 to 1"),
        ("x_h", 0.0, "1e-10 to inf"),
    ],
)
def test_a_default_out_of_bounds_is_refused(
    make: Make, quantity: Quantity, default: float, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{quantity}: .*{allowed}"):
        make(quantity, default=default)


def test_states_times_goals_and_humans_are_told_apart(make: Make, ask: Ask) -> None:
    table = make("v_h_e")
    learn(table, ask([1, 1, 1, 4], [1, 1, 2, 1], goal=[0, 2, 0, 0]), [[0.1], [0.2], [0.3], [0.4]])
    query = ask([1, 1, 1, 1, 4, 4], [1, 1, 1, 2, 1, 2], goal=[0, 1, 2, 0, 0, 0])
    assert read(table, query) == [[pytest.approx(v)] for v in (0.1, 0.5, 0.2, 0.3, 0.4, 0.5)]
    table = make("x_h")
    learn(table, ask([1, 1], human=[0, 2]), [[0.5], [0.25]])
    assert read(table, ask([1, 1], human=[2, 0])) == [[0.25], [0.5]]


def test_time_can_be_left_out_of_the_keys(make: Make, ask: Ask) -> None:
    table = make("v_r", include_time=False, min_rate=0.0)
    learn(table, ask([1, 1], [1, 2]), [[-2.0], [-4.0]])
    assert read(table, ask([1, 1], [1, 3])) == [[-3.0], [-3.0]]
    assert table.num_entries == 1
    assert "steps_left" not in table.state_dict()


@pytest.mark.parametrize("words", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_rows_of_any_width_and_dtype_are_keys(
    spec: WorldSpec, words: int, dtype: torch.dtype
) -> None:
    spec = dataclasses.replace(spec, state_words=words, state_dtype=dtype)
    table = LookupTable(LookupParams(), spec, "v_r")
    states = torch.zeros((words + 1, words), dtype=dtype)
    states[torch.arange(words), torch.arange(words)] = 1
    query = ValueQuery(states, torch.arange(words + 1) + 10**10)
    values = -torch.arange(2.0, words + 3)[:, None]
    learn(table, query, values.tolist())
    assert read(table, query) == values.tolist()
    assert torch.equal(table.states(), states)
    assert torch.equal(table.steps_left(), query.steps_left)


def test_any_layout_of_the_question_in_memory_will_do(make: Make, ask: Ask) -> None:
    table, query = make(), ask([1, 2, 3], [1, 2, 3])
    learn(table, query, [[-2.0], [-3.0], [-4.0]])
    strided = torch.stack([query.states, query.states + 1], 2)[..., 0]
    times = torch.tensor([[1, 9], [2, 9], [3, 9]])[:, 0]
    assert read(table, ValueQuery(strided, times)) == [[-2.0], [-3.0], [-4.0]]
    assert read(table, ValueQuery(strided.long(), times.int())) == [[-2.0], [-3.0], [-4.0]]
    assert read(table, ValueQuery(strided[:1].expand(2, -1), times[:1].expand(2))) == [[-2.0]] * 2


def test_questions_with_gradients_in_training_mode_get_entries_that_are_not_saved(
    make: Make, ask: Ask
) -> None:
    table = make()
    table.eval()(ask([1]))
    assert table.num_entries == 0
    answers = table.train()(ask([1, 2]))
    assert answers.requires_grad
    assert table.num_entries == 2
    assert len(table.state_dict()["states"]) == 0
    learn(table, ask([2]), [[-5.0]])
    assert table.state_dict()["states"].tolist() == [[2, 7]]
    assert table.state_dict()["values"].tolist() == [[-5.0]]


def test_an_optimiser_of_torch_can_train_it(make: Make, ask: Ask) -> None:
    table, query = make("v_h_e"), ask([1, 2], goal=[0, 1])
    table(query)
    optimiser = torch.optim.Adam(table.parameters(), lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        (table(query) - torch.tensor([[0.2], [0.9]])).square().sum().backward()
        optimiser.step()
    assert read(table, query) == [[pytest.approx(0.2, abs=0.02)], [pytest.approx(0.9, abs=0.02)]]
    assert read(table, ask([1, 3], goal=[1, 1])) == [[0.5], [0.5]]
    assert len(table.state_dict()["states"]) == 2


def test_values_pushed_out_of_bounds_are_read_at_the_bound_and_can_come_back(
    make: Make, ask: Ask
) -> None:
    table, query = make("v_h_e"), ask([1], goal=[0])
    table(query)
    with torch.no_grad():
        table.values += 3.0
    answer = table(query)
    assert answer.tolist() == [[1.0]]
    (answer - 0.5).square().sum().backward()
    assert float(table.values.grad[0]) == 1.0


def test_growing_keeps_the_parameter_and_all_values(make: Make, ask: Ask) -> None:
    table = make("q_r")
    parameter = table.values
    for start in range(0, 3000, 100):
        words = range(start, start + 100)
        learn(table, ask(words), [[-word - 1.0, -word - 2.0] for word in words])
    assert table.values is parameter
    assert table.num_entries == 3000
    words = [2999, 0, 1500]
    assert read(table, ask(words)) == [[-word - 1.0, -word - 2.0] for word in words]


@pytest.mark.slow
def test_what_was_saved_in_another_process_means_the_same_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import sys, torch
from safetensors.torch import save_file
from empo_testing.worlds import TinyWorld
from empo_core.types import ValueQuery
from empo_lookup_tables.plugin import LookupParams
from empo_lookup_tables.table import LookupTable
table = LookupTable(LookupParams(), TinyWorld().spec, "v_h_e")
generator = torch.Generator().manual_seed(0)
states = torch.randint(0, 50, (2000, 2), generator=generator).to(torch.int16)
times, goal = (torch.randint(0, 3, (2000,), generator=generator) for _ in range(2))
target = torch.rand((2000, 1), generator=generator)
query = ValueQuery(states, times, goal=goal)
table.regression(weight_decay=0.0, max_grad_norm=None).fit(
    query, target, torch.ones_like(target), lr=1.0
)
with torch.no_grad():
    answers = table(query)
asked = {"asked": states, "times": times, "goal": goal, "answers": answers}
save_file(table.state_dict(), sys.argv[1] + ".table")
save_file(asked, sys.argv[1] + ".asked")
"""
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    arguments = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "there")]
    subprocess.run(arguments, check=True, env=os.environ | {"PYTHONHASHSEED": "1"})
    monkeypatch.setattr(sys, "argv", ["program.py", str(tmp_path / "here")])
    runpy.run_path(str(tmp_path / "program.py"))
    first, second = (load_file(tmp_path / f"{place}.table") for place in ("here", "there"))
    assert first.keys() == second.keys() == {"states", "steps_left", "values", "counts"}
    assert all(torch.equal(first[name], second[name]) for name in first)
    table = LookupTable(LookupParams(), TinyWorld().spec, "v_h_e")
    table.load_state_dict(second)
    asked = load_file(tmp_path / "there.asked")
    query = ValueQuery(asked["asked"], asked["times"], goal=asked["goal"])
    assert read(table, query) == asked["answers"].tolist()


@pytest.mark.parametrize("states", [[], [1, 2], [2, 1], [1, 2, 3, 4, 5], [8, 9], range(1000)])
def test_it_becomes_what_it_loads_whatever_it_held(make: Make, ask: Ask, states: list[int]) -> None:
    source, target = make("q_r"), make("q_r")
    learn(source, ask([1, 2, 3]), [[-2.0, -3.0], [-4.0, -5.0], [-6.0, -7.0]])
    if states:
        learn(target, ask(states), [[-9.0, -9.0]] * len(states))
    target.load_state_dict(source.state_dict())
    assert read(target, ask([3, 1, 2, 9])) == [[-6.0, -7.0], [-2.0, -3.0], [-4.0, -5.0], [-1, -1]]
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor)
    learn(target, ask([9, 3]), [[-8.0, -8.0], [-8.0, -9.0]])
    assert read(target, ask([9, 3, 1])) == [[-8.0, -8.0], [-7.0, -8.0], [-2.0, -3.0]]
    assert read(source, ask([9, 3])) == [[-1.0, -1.0], [-6.0, -7.0]]


def test_it_can_load_what_it_is(make: Make, ask: Ask) -> None:
    table = make()
    learn(table, ask([1, 2]), [[-2.0], [-3.0]])
    table.load_state_dict(table.state_dict())
    assert read(table, ask([2, 1, 3])) == [[-3.0], [-2.0], [-1.0]]
    assert table.counts[:2].tolist() == [[1.0], [1.0]]


def test_a_copy_learns_for_itself_and_is_brought_up_to_date(make: Make, ask: Ask) -> None:
    source = make()
    learn(source, ask([1]), [[-2.0]])
    target = copy.deepcopy(source).eval()
    learn(source, ask([1, 2]), [[-4.0], [-5.0]])
    assert read(target, ask([1, 2])) == [[-2.0], [-1.0]]
    target.load_state_dict(source.state_dict())
    assert read(target, ask([1, 2])) == [[-3.0], [-5.0]]


def test_what_does_not_fit_is_refused(make: Make, ask: Ask) -> None:
    table = make()
    learn(table, ask([1, 2]), [[-2.0], [-3.0]])
    state = dict(table.state_dict())
    other = make("q_r")
    with pytest.raises(RuntimeError, match=r"2 entries .*q_r"):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match="counts"):
        table.load_state_dict(state | {"steps_left": torch.tensor([1])})
    with pytest.raises(RuntimeError, match="1 of 2 keys"):
        table.load_state_dict(state | {"states": state["states"][[0, 0]]})
    with pytest.raises(RuntimeError, match=r'Missing key.*"counts"'):
        table.load_state_dict({name: state[name] for name in state if name != "counts"})
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"steps_left"'):
        make(include_time=False).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"states have 2 words.*\[2, 3\]"):
        table.load_state_dict(state | {"states": torch.zeros((2, 3), dtype=torch.int16)})


def test_it_can_be_part_of_a_larger_module(make: Make, ask: Ask) -> None:
    modules = torch.nn.ModuleDict({"a": make(), "b": make("q_r")})
    learn(modules["a"], ask([1]), [[-2.0]])
    learn(modules["b"], ask([4]), [[-5.0, -6.0]])
    others = torch.nn.ModuleDict({"a": make(), "b": make("q_r")})
    others.load_state_dict(modules.state_dict())
    assert read(others["a"], ask([1, 4])) == [[-2.0], [-1.0]]
    assert read(others["b"], ask([4])) == [[-5.0, -6.0]]


def test_values_may_be_of_another_precision(make: Make, ask: Ask) -> None:
    table = make().double()
    learn(table, ask([1]), [[-0.1]])
    assert table(ask([1])).dtype == torch.float64
    assert table.counts.dtype == torch.float64


@pytest.mark.gpu
@pytest.mark.parametrize("rule", ["running-mean", "step"])
def test_values_on_another_device_are_the_same(make: Make, ask: Ask, rule: str) -> None:
    here, there = make("v_h_e", rule=rule), make("v_h_e", rule=rule).cuda()
    for number in range(3):
        for table in (here, there):
            device = table.values.device
            query = ask([1, 2, 5, 5], goal=[0, 1, 2, 2])
            if device.type == "cuda" and number == 1:
                query = ValueQuery(
                    query.states.cuda(), query.steps_left.cuda(), goal=query.goal.cuda()
                )
            target = torch.tensor([[0.1], [0.2], [0.3], [0.5]], device=device)
            regression = table.regression(weight_decay=0.0, max_grad_norm=1.0)
            regression.fit(query, target, torch.ones_like(target), lr=0.1)
            regression.load_state_dict(regression.state_dict())
            assert table(query).device.type == device.type
    there.load_state_dict(there.state_dict())
    torch.testing.assert_close(there.cpu().state_dict(), here.state_dict())


def test_a_question_without_what_it_is_about_is_refused(make: Make, ask: Ask) -> None:
    with pytest.raises(ValueError, match=r"v_h_e .*1 questions.*none"):
        make("v_h_e")(ask([1]))
    with pytest.raises(ValueError, match="goal 3"):
        make("v_h_e")(ask([1], goal=[3]))
    with pytest.raises(ValueError, match=r"goal -1"):
        make("v_h_e")(ask([1], goal=[-1]))
    with pytest.raises(ValueError, match="robot"):
        make("x_h")(ask([1], human=[1]))


@pytest.mark.parametrize("state", [-1, 2])
def test_a_question_about_a_state_that_is_not_there_is_refused(
    make: Make, ask: Ask, state: int
) -> None:
    with pytest.raises(IndexError, match="range"):
        make("v_h_e")(ask([1, 2], goal=[0, 0], state=[0, state]))


def test_a_question_about_rows_of_another_world_is_refused(make: Make) -> None:
    times = torch.tensor([1])
    with pytest.raises(ValueError, match=r"states have 2 words.*shape \[1, 3\]"):
        make()(ValueQuery(torch.zeros((1, 3), dtype=torch.int16), times))
    with pytest.raises(ValueError, match=r"int16, and a question's torch\.int64"):
        make()(ValueQuery(torch.tensor([[1, 2**20]]), times))


def test_a_world_without_goals_has_no_table_of_them(spec: WorldSpec) -> None:
    spec = dataclasses.replace(spec, goals=())
    with pytest.raises(ConfigError, match=r"goals.* v_h_e"):
        LookupTable(LookupParams(), spec, "v_h_e")


def test_it_knows_how_much_memory_it_takes(make: Make, ask: Ask) -> None:
    table = make("q_r")
    assert table.bytes_per_entry == 0.0
    words = range(20_000)
    learn(table, ask(words), [[-1.5, -2.5]] * len(words))
    assert table.num_entries == len(words)
    assert table.bytes_per_entry == table.memory_bytes() / len(words)
    # 16 bytes of key, 8 to 16 of hash table, 16 of values and counts, and up to as much to spare.
    assert 40 <= table.bytes_per_entry <= 2 * 48
