"""Values that are kept change no target, and spare networks what they were asked before."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from batches import EVERYTHING, SETTING, THEORY, Form, Made, aggregator, made

from empo_core.types import Quantity
from empo_phase2 import quantities
from empo_phase2.quantities import Quantities, TargetCache
from empo_phase2.targets import BatchTargets

LEARNED: list[tuple[Quantity, ...]] = [("v_h_e", "q_r"), ("v_h_e", "v_r"), EVERYTHING]


def halves() -> tuple[Made, Made]:
    """Batches about the same states of which the second has some that the first has not."""
    first = made(3, Form(transitions=6, states=30, fewest_successors=1))
    second = made(8, first.form)
    return first, replace(second, states=first.states, slots=first.slots, spec=first.spec)


def assert_equal(actual: BatchTargets, expected: BatchTargets) -> None:
    for name in ("q_r", "pi_r", "v_h_e", "x_h", "u_r", "v_r"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name))


@pytest.mark.parametrize("max_numbers", [quantities.MOST_NUMBERS, 1])
@pytest.mark.parametrize("learned", LEARNED, ids="-".join)
def test_targets_are_those_without_a_cache(
    learned: tuple[Quantity, ...], max_numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantities, "MOST_NUMBERS", max_numbers)
    networks, cache = halves()[0].networks(learned), TargetCache()
    for beta_r in (1.0, 5.0):  # Which may change while networks stay the same.
        for problem in halves():
            setting = replace(SETTING, beta_r=beta_r)
            found = problem.batched(networks, THEORY, setting, cache=cache)
            assert_equal(found, problem.batched(networks, THEORY, setting))


def test_networks_are_asked_about_new_situations_only() -> None:
    first, second = halves()
    networks, cache, sizes = first.networks(("v_h_e", "q_r")), TargetCache(), []
    networks["q_r"].register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    for problem in (first, second, first, second):
        problem.batched(networks, THEORY, SETTING, cache=cache)
    assert len(sizes) == 2
    assert sum(sizes) == len(cache)
    cache.clear()
    first.batched(networks, THEORY, SETTING, cache=cache)
    assert sizes[2] == sizes[0]


def test_it_holds_no_more_than_one_batch_where_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantities, "MOST_NUMBERS", 1)
    first, second = halves()
    networks, cache = first.networks(("v_h_e", "q_r")), TargetCache()
    for problem in (first, second):
        found = problem.batched(networks, THEORY, SETTING, cache=cache)
        assert len(cache) == found.distinct


def saved_and_empty(learned: tuple[Quantity, ...]) -> tuple[TargetCache, dict[str, torch.Tensor]]:
    """A cache with values, and what the same networks give for no timed states."""
    problem = halves()[0]
    networks, cache = problem.networks(learned), TargetCache()
    problem.batched(networks, THEORY, SETTING, cache=cache)
    return cache, Quantities(networks, problem.spec, problem.slots, THEORY, aggregator()).empty


@pytest.mark.parametrize("learned", LEARNED, ids="-".join)
def test_it_goes_on_from_its_state(learned: tuple[Quantity, ...]) -> None:
    cache, empty = saved_and_empty(learned)
    restored = TargetCache()
    restored.load_state_dict(cache.state_dict(), empty)
    assert len(restored) == len(cache) > 0
    torch.testing.assert_close(restored.values, cache.values, rtol=0, atol=0)
    restored.load_state_dict(TargetCache().state_dict(), empty)
    assert (len(restored), restored.values) == (0, {})


@pytest.mark.parametrize("quantity", ["v_h_e", "q_r"])
def test_a_state_whose_values_have_another_shape_is_refused(quantity: str) -> None:
    cache, empty = saved_and_empty(("v_h_e", "q_r"))
    state = cache.state_dict()
    state["values"][quantity] = state["values"][quantity][:, :1]
    with pytest.raises(ValueError, match="shape"):
        TargetCache().load_state_dict(state, empty)


def test_a_state_in_which_a_key_is_there_twice_is_refused() -> None:
    cache, empty = saved_and_empty(("v_h_e", "q_r"))
    state = cache.state_dict()
    state["key"][1] = state["key"][0]
    with pytest.raises(ValueError, match="two values"):
        TargetCache().load_state_dict(state, empty)
