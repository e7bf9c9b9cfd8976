"""Inputs, shared encoders and sizes of value networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch
from pydantic import ValidationError

from empo_core.errors import ConfigError
from empo_core.types import Quantity, ValueQuery
from empo_networks.encoders import FeatureLinear, FlatStates
from empo_networks.network import Network
from empo_networks.plugin import MlpParams
from empo_testing.exploration import reachable_states
from empo_testing.value_network import disturb, every_question
from empo_testing.worlds import TinyWorld

Make = Callable[..., Network]
USERS: tuple[Quantity, ...] = ("q_r", "x_h", "u_r", "v_r")


@pytest.mark.parametrize("kind", ["mlp", "grid-conv"])
def test_each_state_is_encoded_once_however_many_questions_are_about_it(
    make: Make, picture_world: TinyWorld, kind: str
) -> None:
    spec = picture_world.spec
    network = make(kind, spec, "v_h_e")
    rows: list[int] = []
    network.encoders["state"].register_forward_hook(lambda *call: rows.append(len(call[2])))
    states = reachable_states(picture_world, limit=3)
    count, goals = len(states), len(spec.goals)
    query = ValueQuery(
        states,
        torch.ones(count, dtype=torch.int64),
        goal=torch.arange(goals).repeat(count),
        state=torch.arange(count).repeat_interleave(goals),
    )
    assert len(network(query)) == count * goals
    assert rows == [count]


def test_layers_of_features_leave_out_columns_of_zeros_only(
    make: Make, picture_world: TinyWorld
) -> None:
    network = make("mlp", picture_world.spec, "v_r")
    states = reachable_states(picture_world, limit=5)
    steps = torch.arange(1, len(states) + 1)
    scaler, layer = network.scaler, cast("FlatStates", network.encoders["state"]).layers[0]
    assert isinstance(layer, FeatureLinear)
    drawn = scaler.scaled(scaler.featurizer(states), steps)
    assert 0 < len(drawn.nonzero.columns) < drawn.flat.shape[1] == layer.in_features
    assert torch.equal(drawn.flat[:, drawn.nonzero.columns], drawn.nonzero.values)
    assert int((drawn.flat != 0).sum()) == int((drawn.nonzero.values != 0).sum())
    torch.testing.assert_close(layer(drawn), layer(drawn.flat))
    for _ in range(2):  # The second time from the cache.
        assert torch.equal(scaler(ValueQuery(states, steps)).flat, drawn.flat)


def test_values_change_with_every_step(make: Make) -> None:
    for kind in ("mlp", "identity"):
        network = make(kind, TinyWorld(horizon=40).spec, "v_r")
        disturb(network, scale=0.1, seed=0)
        steps = torch.arange(1, 41)
        states = TinyWorld().initial_state().repeat(40, 1)
        assert len(set(network(ValueQuery(states, steps)).flatten().tolist())) == 40
        timeless = make(kind, TinyWorld(horizon=40).spec, "v_r", include_time=False)
        disturb(timeless, scale=0.1, seed=0)
        assert len(set(timeless(ValueQuery(states, steps)).flatten().tolist())) == 1


def test_humans_and_goals_without_features_are_told_apart(make: Make) -> None:
    for kind in ("mlp", "identity"):
        for quantity, questions in (("x_h", 2), ("v_h_e", 3)):
            network = make(kind, TinyWorld().spec, quantity)
            query = every_question(TinyWorld(), quantity)
            first = ValueQuery(
                query.states[:questions],
                query.steps_left[:1].expand(questions),
                None if query.human is None else query.human[:questions],
                None if query.goal is None else query.goal[:questions],
            )
            assert bool((first.states == first.states[0]).all())
            assert len(set(network(first).flatten().tolist())) == questions


def test_a_question_that_names_no_goal_is_refused(make: Make) -> None:
    query = ValueQuery(TinyWorld().initial_state()[None], torch.ones(1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"v_h_e.* goal"):
        make("mlp", TinyWorld().spec, "v_h_e")(query)
    with pytest.raises(ValueError, match=r"x_h.* human"):
        make("mlp", TinyWorld().spec, "x_h")(query)


def test_worlds_without_what_a_quantity_is_about_are_refused(make: Make) -> None:
    spec = TinyWorld().spec
    agents = tuple(replace(agent, role="other") for agent in spec.agents)
    nobody = replace(spec, agents=agents, goals=())
    with pytest.raises(ConfigError, match=r"x_h.* human.*'door'"):
        make("mlp", nobody, "x_h")
    with pytest.raises(ConfigError, match=r"v_h_e.* goal"):
        make("identity", replace(spec, goals=()), "v_h_e")
    with pytest.raises(ConfigError, match="robots"):
        make("mlp", nobody, "q_r")
    with pytest.raises(ConfigError, match="grid"):
        make("grid-conv", spec, "q_r")


def test_an_exponent_without_its_space_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"z_exponent .*space 'z'"):
        MlpParams(z_exponent=2.0)
    assert MlpParams(space="z", z_exponent=2.0).z_exponent == 2


@pytest.mark.parametrize("kind", ["mlp", "grid-conv"])
def test_the_loss_of_each_quantity_reaches_its_own_parameters_only(
    make: Make, picture_world: TinyWorld, kind: str
) -> None:
    spec = picture_world.spec
    source = make(kind, spec, "v_h_e")
    networks = {quantity: make(kind, spec, quantity) for quantity in USERS}
    assert all(network.share(source) for network in networks.values())
    networks["v_h_e"] = source
    for network in networks.values():
        disturb(network, scale=0.1, seed=0)
    for asked, network in networks.items():
        for other in networks.values():
            other.zero_grad()
        torch.autograd.backward(network(every_question(picture_world, asked)).square().mean())
        reached = {
            quantity: any(p.grad is not None for p in other.parameters())
            for quantity, other in networks.items()
        }
        assert reached == {quantity: quantity == asked for quantity in networks}
        assert all(p.grad is not None and bool(p.grad.any()) for p in network.out.parameters())
    # Now the gradients are those of the last loss, the one of V_h^e.
    for part, encoder in source.encoders.items():
        assert all(p.grad is not None for p in encoder.parameters()), part


@pytest.mark.parametrize("quantity", USERS)
def test_shared_encoders_are_read_and_stored_but_not_trained(
    make: Make, picture_world: TinyWorld, quantity: Quantity
) -> None:
    source = make("mlp", picture_world.spec, "v_h_e")
    network = make("mlp", picture_world.spec, quantity)
    assert network.share(source)
    query = every_question(picture_world, quantity)
    encoders = [p for part in network.encoders for p in source.encoders[part].parameters()]
    trained = {id(p) for p in network.parameters()}
    assert not trained & {id(p) for p in encoders}
    stored = {tensor.data_ptr() for tensor in network.state_dict().values()}
    assert {p.data_ptr() for p in encoders} <= stored
    snapshot, before = copy.deepcopy(network), network(query).detach()
    disturb(source, scale=0.5, seed=0)
    assert not torch.equal(network(query), before), "what the source learns has no effect"
    assert torch.equal(snapshot(query), before), "a copy changes with the source"
    snapshot.load_state_dict(network.state_dict())
    assert torch.equal(snapshot(query), network(query))


def test_only_encoders_that_fit_are_shared(make: Make, picture_world: TinyWorld) -> None:
    spec = picture_world.spec
    source = make("mlp", spec, "v_h_e")
    assert not make("mlp", spec, "q_r", sharing=False).share(source)
    assert not make("identity", spec, "q_r").share(source)
    assert not make("mlp", spec, "q_r").share(make("identity", spec, "v_h_e"))
    assert not make("mlp", spec, "q_r").share(make("mlp", spec, "x_h"))
    assert not make("mlp", spec, "v_h_e").share(source)
    assert not make("mlp", TinyWorld().spec, "q_r").share(source)
    assert not make("mlp", spec, "q_r", include_time=False).share(source)
    assert make("grid-conv", spec, "q_r").share(source)


def test_sharing_comes_before_fitting(make: Make) -> None:
    network = make("mlp", TinyWorld().spec, "q_r")
    network.regression(weight_decay=0.0, max_grad_norm=None)
    with pytest.raises(ConfigError, match="fitted"):
        network.share(make("mlp", TinyWorld().spec, "v_h_e"))


def test_networks_without_encoders_are_much_smaller(make: Make, picture_world: TinyWorld) -> None:
    spec = picture_world.spec
    full = make("grid-conv", spec, "q_r")
    assert full.share(make("grid-conv", spec, "v_h_e"))
    bare = make("identity", spec, "q_r")
    numbers = [
        sum(tensor.numel() for tensor in network.state_dict().values()) for network in (bare, full)
    ]
    assert numbers[0] < numbers[1] / 4
