"""Equality of policies step by step and over whole segments, and structure of their networks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from policy_shapes import policy_params
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, build_policy

GRID = (2, 3, 4)
WORDS = math.prod(GRID) + 5
ACTIONS = {
    "discrete": ActionSpec(choices=(3,)),
    "multi-discrete": ActionSpec(choices=(3, 2)),
    "continuous": ActionSpec(low=(-1.0, -math.inf), high=(1.0, math.inf)),
}
KINDS = [
    (network, memory, critic, agents, actions)
    for network, memory, critic, agents, actions in itertools.product(
        ("mlp", "conv"), ("none", "lstm", "gru"), ("own", "shared"), ("shared", "separate"), ACTIONS
    )
    if memory == "none" or critic == "shared"
]


def env_spec(actions: str = "discrete", dtype: Any = "float32", **changes: Any) -> EnvSpec:
    kind = ACTIONS[actions]
    seen = ObservationSpec(WORDS, dtype, GRID)
    values = {"agents": ("one", "two", "three"), "masks": kind.is_discrete, **changes}
    return EnvSpec(**{"observations": seen, "actions": kind, "num_envs": 2, **values})


def built(place: EnvSpec, seed: int = 0, stir: bool = True, **params: Any) -> Networks:
    """A small policy; stirred, its heads say something and no bias is 0."""
    generator = torch.Generator().manual_seed(seed)
    kind = PolicyParams.model_validate(policy_params(**params))
    policy = build_policy(kind, place, generator=generator)
    if stir:
        with torch.no_grad():
            for weight in policy.parameters():
                weight += 0.3 * torch.randn(weight.shape, generator=generator)
    return policy


@dataclass
class Scene:
    """Segments in which episodes begin anywhere, and memories from before."""

    observation: Tensor
    memory: Tensor
    starts: Tensor
    agent: Tensor
    mask: Tensor | None


def scene(policy: Networks, place: EnvSpec, times: int = 9, segments: int = 7) -> Scene:
    generator = torch.Generator().manual_seed(1)
    seen = place.observations
    if seen.dtype == "uint8":
        observation = torch.randint(0, 256, (times, segments, seen.words), generator=generator)
        observation = observation.to(torch.uint8)
    else:
        observation = torch.randn(times, segments, seen.words, generator=generator)
    mask = None
    if place.masks:
        options = sum(place.actions.choices)
        mask = torch.rand(times, segments, options, generator=generator) < 0.6
        first = torch.tensor([0, *place.actions.choices[:-1]]).cumsum(0)
        mask[..., first] = True
    return Scene(
        observation,
        torch.randn(segments, policy.memory_size, generator=generator),
        torch.rand(times, segments, generator=generator) < 0.3,
        torch.randperm(segments, generator=generator) % len(place.agents),
        mask,
    )


def acted(policy: Networks, scene: Scene) -> tuple[Tensor, Tensor, Tensor]:
    """Actions drawn step by step, their log-probabilities, and values."""
    torch.manual_seed(2)
    memory, steps = scene.memory, []
    for time in range(len(scene.starts)):
        mask = None if scene.mask is None else scene.mask[time]
        step = policy.step(scene.observation[time], memory, scene.starts[time], scene.agent, mask)
        action, memory = step.distribution.sample(), step.memory
        steps.append((action, step.distribution.log_prob(action), step.value))
    action, log_prob, value = (torch.stack(part) for part in zip(*steps, strict=True))
    return action, log_prob, value


def judged(policy: Networks, scene: Scene, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of actions, and values, of whole segments at once."""
    hidden, value, _ = policy.unroll(scene.observation, scene.memory, scene.starts, scene.agent)
    times = len(scene.starts)
    mask = None if scene.mask is None else scene.mask.flatten(0, 1)
    chosen = policy.distribution(hidden.flatten(0, 1), scene.agent.repeat(times), mask)
    return chosen.log_prob(action.flatten(0, 1)).view(value.shape), value


@pytest.mark.parametrize(("network", "memory", "critic", "agents", "actions"), KINDS)
def test_segments_are_judged_as_they_were_acted_and_learn_alike(
    network: str, memory: str, critic: str, agents: str, actions: str
) -> None:
    place = env_spec(actions, "uint8" if network == "conv" else "float32")
    policy = built(place, network=network, memory=memory, critic=critic, agents=agents)
    given = scene(policy, place)

    action, log_prob, value = acted(policy, given)
    again, value_again = judged(policy, given, action)

    torch.testing.assert_close(again, log_prob, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(value_again, value, rtol=0, atol=1e-6)
    assert (torch.exp(again - log_prob) - 1).abs().max() < 1e-5

    weights = list(policy.parameters())
    scale = torch.arange(1.0, 1 + value.numel()).view(value.shape) / value.numel()
    by_steps = torch.autograd.grad(((log_prob + value) * scale).sum(), weights)
    at_once = torch.autograd.grad(((again + value_again) * scale).sum(), weights)
    assert all(gradient.abs().max() > 0 for gradient in by_steps)
    torch.testing.assert_close(at_once, by_steps, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_nothing_of_an_episode_reaches_the_next_not_even_nan(kind: str) -> None:
    place = env_spec()
    policy = built(place, memory=kind, critic="shared")
    given = scene(policy, place, times=6, segments=4)
    given.starts[:] = False
    given.starts[0] = given.starts[3] = True
    given.memory[:] = math.nan
    observation = given.observation.requires_grad_()

    value = policy.unroll(observation, given.memory, given.starts, given.agent).value
    (gradient,) = torch.autograd.grad(value[3:].sum(), observation)

    assert value.isfinite().all()
    assert (gradient[:3] == 0).all()
    assert (gradient[3:] != 0).any()
    stepped = policy.step(observation[3], given.memory, given.starts[3], given.agent)
    torch.testing.assert_close(stepped.value, value[3], rtol=0, atol=1e-6)


def test_memory_changes_what_is_said_until_an_episode_begins() -> None:
    place = env_spec()
    policy = built(place, memory="gru", critic="shared")
    given = scene(policy, place)
    going_on, starting = torch.zeros(7, dtype=torch.bool), torch.ones(7, dtype=torch.bool)
    void = policy.initial_memory(7)

    def value(memory: Tensor, starts: Tensor) -> Tensor:
        return policy.step(given.observation[0], memory, starts, given.agent).value

    assert void.shape == (7, 4)
    assert (value(given.memory, going_on) - value(void, going_on)).abs().min() > 1e-4
    torch.testing.assert_close(value(given.memory, starting), value(void, going_on), rtol=0, atol=0)


@pytest.mark.parametrize(("kind", "units"), [("none", 0), ("gru", 4), ("lstm", 8)])
def test_memory_is_one_row_per_agent(kind: str, units: int) -> None:
    place = env_spec()
    policy = built(place, memory=kind, critic="shared")
    given = scene(policy, place)

    step = policy.step(given.observation[0], given.memory, given.starts[0], given.agent)
    hidden = policy.unroll(
        given.observation[:1], given.memory, given.starts[:1], given.agent
    ).hidden[0]

    assert isinstance(policy, Networks)
    assert policy.memory_size == units
    assert step.memory.shape == (7, units)
    if units:  # An LSTM's h comes before its c.
        torch.testing.assert_close(step.memory[:, :4], hidden, rtol=0, atol=1e-6)


@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
def test_agents_with_networks_of_their_own_act_as_if_alone(memory: str) -> None:
    place = env_spec("continuous")
    policy = built(place, memory=memory, critic="shared", agents="separate")
    given = scene(policy, place)
    given.agent = torch.tensor([2, 0, 0, 2, 0, 2, 2])  # Nobody is agent 1.
    action = torch.randn(9, 7, 2)
    log_prob, value = judged(policy, given, action)

    for position in (0, 2):
        alone = built(env_spec("continuous", agents=("x",)), memory=memory, critic="shared")
        alone.networks[0].load_state_dict(policy.networks[position].state_dict())
        mine = given.agent == position
        part = Scene(
            given.observation[:, mine],
            given.memory[mine],
            given.starts[:, mine],
            torch.zeros(int(mine.sum()), dtype=torch.long),
            None,
        )
        expected, expected_value = judged(alone, part, action[:, mine])
        torch.testing.assert_close(log_prob[:, mine], expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(value[:, mine], expected_value, rtol=0, atol=1e-6)

    gradient = torch.autograd.grad(
        (log_prob + value).sum(), list(policy.networks[1].parameters()), allow_unused=True
    )
    assert all(part is None or (part == 0).all() for part in gradient)


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_no_rows_at_all_are_fine(memory: str) -> None:
    place = env_spec()
    policy = built(place, memory=memory, critic="shared", agents="separate")
    nobody = torch.zeros(0, dtype=torch.long)

    step = policy.step(torch.zeros(0, WORDS), policy.initial_memory(0), nobody.bool(), nobody)

    assert step.value.shape == (0,)
    assert step.memory.shape == (0, policy.memory_size)


def test_what_is_unavailable_is_never_chosen() -> None:
    place = env_spec("multi-discrete")
    policy = built(place)
    given = scene(policy, place)
    assert given.mask is not None
    step = policy.step(
        given.observation[0], given.memory, given.starts[0], given.agent, given.mask[0]
    )

    torch.manual_seed(0)
    drawn = step.distribution.sample((500,))

    first, second = drawn[..., 0], drawn[..., 1] + 3
    agents = torch.arange(7)
    assert given.mask[0][agents, first].all()
    assert given.mask[0][agents, second].all()
    assert len(first.unique()) == 3


def test_initial_weights_are_orthogonal_with_the_usual_gains() -> None:
    policy = built(env_spec("continuous"), stir=False, hidden=[16, 8], log_std=-0.5)
    (network,) = policy.members

    for layer, gain in (
        (network.trunk.layers[0], math.sqrt(2)),
        (network.trunk.layers[2], math.sqrt(2)),
        (network.head, 0.01),
        (network.critic, 1.0),
    ):
        weight = layer.weight.detach()
        small = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
        torch.testing.assert_close(small, gain**2 * torch.eye(len(small)), rtol=0, atol=1e-5)
        assert (layer.bias == 0).all()
    assert network.log_std.tolist() == [-0.5, -0.5]
    state = network.state_dict()
    assert set(state) == {name for name, _ in network.named_parameters()}


@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
def test_one_seed_gives_one_set_of_weights_and_leaves_other_draws_alone(memory: str) -> None:
    torch.manual_seed(5)
    undisturbed = torch.rand(3)
    torch.manual_seed(5)
    kind = {"memory": memory, "critic": "shared", "agents": "separate"}
    one, same, other = (built(env_spec(), seed, False, **kind) for seed in (0, 0, 1))

    torch.testing.assert_close(torch.rand(3), undisturbed, rtol=0, atol=0)
    torch.testing.assert_close(one.state_dict(), same.state_dict(), rtol=0, atol=0)
    head, others = one.state_dict()["networks.0.head.weight"], other.state_dict()
    assert (head != others["networks.0.head.weight"]).any()
    assert (head != one.state_dict()["networks.1.head.weight"]).any()


@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
def test_a_state_dict_is_all_there_is(memory: str) -> None:
    place = env_spec("continuous")
    kind = {"memory": memory, "critic": "shared"}
    policy, other = built(place, 0, **kind), built(place, 1, **kind)
    given = scene(policy, place)
    action = torch.zeros(9, 7, 2)

    other.load_state_dict(policy.state_dict())

    for one, same in zip(judged(policy, given, action), judged(other, given, action), strict=True):
        torch.testing.assert_close(same, one, rtol=0, atol=0)


@pytest.mark.parametrize("network", ["mlp", "conv"])
def test_pictures_are_scaled_to_one(network: str) -> None:
    bytes_seen, floats_seen = env_spec(dtype="uint8"), env_spec()
    policy, same = built(bytes_seen, network=network), built(floats_seen, network=network)
    given = scene(policy, bytes_seen)
    fractions = given.observation.float() / 255

    value = policy.step(given.observation[0], given.memory, given.starts[0], given.agent).value

    expected = same.step(fractions[0], given.memory, given.starts[0], given.agent).value
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)


def test_convolutions_see_the_picture_where_it_is_and_words_join_behind_them() -> None:
    place = env_spec(observations=ObservationSpec(2 * 4 * 4 + 3, "float32", (2, 4, 4)))
    (network,) = built(place, network="conv", channels=[3]).members
    row = torch.randn(1, 2 * 4 * 4 + 3)
    joined = torch.cat([network.trunk.convolutions(row[:, :32].view(1, 2, 4, 4)).flatten(1),
                        row[:, 32:]], 1)  # fmt: skip

    torch.testing.assert_close(network.trunk(row), network.trunk.layers(joined))
    assert network.trunk.layers[0].in_features == 3 * 4 * 4 + 3


def test_large_pictures_are_halved_until_they_are_small() -> None:
    place = env_spec(observations=ObservationSpec(84 * 40, "uint8", (1, 84, 40)))
    (network,) = built(place, network="conv", channels=[2, 2, 2, 2]).members

    strides = [layer.stride[0] for layer in network.trunk.convolutions[::2]]

    assert strides == [2, 2, 2, 1]  # 84 by 40, 42 by 20, 21 by 10, 11 by 5.
    assert network.trunk.layers[0].in_features == 2 * 11 * 5


@pytest.mark.parametrize(("critic", "reaches"), [("own", False), ("shared", True)])
def test_a_critic_of_its_own_leaves_the_policy_alone(critic: str, reaches: bool) -> None:
    place = env_spec()
    policy = built(place, critic=critic)
    given = scene(policy, place)
    value = policy.unroll(given.observation, given.memory, given.starts, given.agent).value

    weight = policy.members[0].trunk.layers[0].weight
    (gradient,) = torch.autograd.grad(value.sum(), [weight], allow_unused=True)

    assert (gradient is not None) == reaches


@pytest.mark.parametrize("critic", ["own", "shared"])
def test_without_hidden_layers_everything_is_linear_in_what_is_seen(critic: str) -> None:
    place = env_spec()
    policy = built(place, hidden=[], critic=critic)
    given = scene(policy, place)
    (network,) = policy.members

    hidden, value, _ = policy.unroll(given.observation, given.memory, given.starts, given.agent)

    torch.testing.assert_close(hidden, given.observation, rtol=0, atol=0)
    expected = given.observation @ network.critic.weight[0] + network.critic.bias
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu", "gelu"])
def test_each_activation_is_the_one_asked_for(activation: str) -> None:
    (network,) = built(env_spec(), activation=activation, hidden=[5]).members
    rows = torch.randn(4, WORDS)

    function = getattr(torch if activation in {"tanh", "relu"} else torch.nn.functional, activation)
    torch.testing.assert_close(network.trunk(rows), function(network.trunk.layers[0](rows)))


@pytest.mark.parametrize("memory", ["none", "lstm", "gru"])
@pytest.mark.parametrize("agents", ["shared", "separate"])
def test_half_precision_is_confined_to_the_networks(memory: str, agents: str) -> None:
    place = env_spec("multi-discrete")
    policy = built(place, memory=memory, critic="shared", agents=agents)
    given = scene(policy, place)
    exact = acted(policy, given)

    with torch.autocast("cpu", torch.bfloat16):
        step = policy.step(given.observation[0], given.memory, given.starts[0], given.agent)
        log_prob, value = judged(policy, given, exact[0])
        (log_prob.sum() + value.sum()).backward()

    assert step.value.dtype == step.memory.dtype == torch.float32
    assert log_prob.dtype == value.dtype == torch.float32
    assert (value != exact[2]).any()
    torch.testing.assert_close(value, exact[2], rtol=0.1, atol=0.1)
    torch.testing.assert_close(log_prob, exact[1], rtol=0.1, atol=0.1)
    assert all(weight.grad is not None for weight in policy.parameters())


@pytest.mark.parametrize(
    ("params", "place", "message"),
    [
        (
            {"network": "conv"},
            env_spec(observations=ObservationSpec(4)),
            "'conv' .*4 float32 .*'mlp'",
        ),
        (
            {"log_std": -1.0},
            env_spec("multi-discrete"),
            "policy.log_std: .*3 x 2",
        ),
        ({}, EnvSpec(ObservationSpec(4), ActionSpec(), ("a",), 1), "no actions"),
    ],
)
def test_what_does_not_fit_is_said(params: dict[str, Any], place: EnvSpec, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(place, **params)
