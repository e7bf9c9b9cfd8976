"""Non-finite numbers are detected where they appear, named, and neither published nor saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from batches import EVERYTHING, Form, Made, made
from door_components import FlatNet
from doors import Adding
from torch import Tensor, nn

from empo_core.components import build
from empo_core.errors import NonFiniteError
from empo_core.protocols import Collector, Weights
from empo_core.trees import StateDict
from empo_core.types import Experience, Quantity
from empo_learning.state_tree import flatten
from empo_learning.timers import Timers
from empo_phase2.behaviour import build_networks
from empo_phase2.experience import States, Transitions
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params, Targets
from empo_phase2.quantities import Quantities
from empo_phase2.targets import decision_weight

pytestmark = pytest.mark.usefixtures("components")


class OneBatch:
    """A replay that always gives the same transitions; stands for an ``empo_phase2.replay``."""

    def __init__(self, problem: Made) -> None:
        self.batch, self.known = problem.batch, problem.states
        self.drawn: list[tuple[int, bool]] = []
        self.renumberings = 0

    def __len__(self) -> int:
        return len(self.batch)

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        assert not state_dict

    def sample_indices(
        self, count: int, generator: torch.Generator, *, oldest: int | None = None,
        by_state: bool = False,
    ) -> Tensor:  # fmt: skip
        self.drawn.append((count, by_state))
        return torch.arange(len(self.batch))

    def transitions(self, indices: Tensor) -> Transitions:
        return self.batch

    def states(self, ids: Tensor) -> States:
        return self.known.at(ids)


def train(learner: Learner) -> None:
    """One training step."""
    learner.train(learner.schedule.at(learner.steps))


class Idle:
    """An actor whose experience is never asked for."""

    def load(self, weights: Weights, version: int) -> None:
        pass

    def act(self, training_step: int) -> Experience:
        raise NotImplementedError

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        assert not state_dict


def lesson(
    on_nan: str = "stop", further: dict[str, Any] | None = None, **optimiser: Any
) -> tuple[Learner, OneBatch, Made]:
    """A learner of everything with networks, in the middle of its training."""
    problem = made(4, Form(transitions=8, fewest_successors=1))
    batch = problem.batch
    problem = replace(
        problem,
        batch=replace(batch, prob=batch.prob.float(), human_policy=batch.human_policy.float()),
    )
    params = Phase2Params.model_validate(
        {
            "human_prior": "test-eager",
            "values": dict.fromkeys(EVERYTHING, "test-flat"),
            "warm_up": dict.fromkeys((*EVERYTHING, "ramp"), 0),
            "optimiser": {"on_nan": on_nan, "target_interval": 1000} | optimiser,
        }
        | (further or {})
    )
    torch.manual_seed(0)
    networks = build_networks(params.values, problem.spec)
    quantities = Quantities(networks, problem.spec, problem.slots, params.theory, Adding())
    memory = OneBatch(problem)
    replay: Any = memory
    explorers = ExplorerSet(params.exploration, problem.spec)
    collector: Collector = build(params.collector)
    collector.start(lambda index: Idle())
    learner = Learner(params, quantities, replay, collector, explorers, Timers(enabled=False), 0)
    train(learner)
    return learner, memory, problem


def net(learner: Learner, quantity: Quantity) -> nn.Module:
    network = learner.networks[quantity]
    assert isinstance(network, nn.Module)
    return network


def target_net(learner: Learner, quantity: Quantity) -> nn.Module:
    network = learner._target_networks[quantity]
    assert isinstance(network, nn.Module)
    return network


def weights_of(learner: Learner) -> dict[str, Tensor]:
    nets = {q: dict(n.state_dict()) for q, n in learner.networks.items()}
    return {name: tensor.clone() for name, tensor in flatten(nets)[1].items()}


Restore = Callable[[], Any]
Poison = Callable[[Learner, OneBatch, Made, float], Restore]


def overwrite(tensor: Tensor, bad: float) -> Restore:
    """Put a number into a tensor; returns what takes it out again."""
    flat = tensor.detach().view(-1)
    kept = flat[0].clone()
    flat[0] = bad
    return lambda: flat[0].copy_(kept)


def says(network: nn.Module, answer: float) -> Restore:
    """Let a network say something else."""
    return network.register_forward_hook(lambda *call: torch.full_like(call[-1], answer)).remove


def poison_gradient(learner: Learner, memory: OneBatch, problem: Made, bad: float) -> Restore:
    bias = net(learner, "q_r").get_parameter("head.bias")
    return bias.register_hook(lambda gradient: gradient * bad).remove


def poison_moment(learner: Learner, memory: OneBatch, problem: Made, bad: float) -> Restore:
    moments = flatten({"q_r": learner._regressions["q_r"].state_dict()})[1]
    return overwrite(next(t for name, t in moments.items() if name.endswith("exp_avg")), bad)


def poison_answers(quantity: Quantity) -> Poison:
    def poison(learner: Learner, memory: OneBatch, problem: Made, bad: float) -> Restore:
        learner._cache.clear()  # Or else target networks would not be asked again.
        return says(target_net(learner, quantity), bad)

    return poison


def poison_target_weight(learner: Learner, memory: OneBatch, problem: Made, bad: float) -> Restore:
    learner._cache.clear()
    return overwrite(target_net(learner, "q_r").get_parameter("head.bias"), bad)


def poison_loss(learner: Learner, memory: OneBatch, problem: Made, bad: float) -> Restore:
    """Finite errors whose squares are not."""
    module = net(learner, "q_r")
    return module.register_forward_hook(lambda *call: call[-1] * 1e25).remove


UPSTREAM: dict[str, tuple[Poison, str]] = {
    "V_h^e": (poison_answers("v_h_e"), r"V_h\^e"),
    "X_h": (poison_answers("x_h"), "X_h"),
    "U_r": (poison_answers("u_r"), "U_r"),
    "Q_r": (poison_answers("q_r"), "Q_r"),
    "V_r": (poison_answers("v_r"), "V_r"),
    "target network": (poison_target_weight, "Q_r"),
}
FITTING: dict[str, tuple[Poison, str]] = {
    "loss": (poison_loss, "loss of q_r"),
    "gradient": (poison_gradient, "gradient of q_r"),
}
CASES = [
    pytest.param(*case, where == UPSTREAM, id=name)
    for where in (UPSTREAM, FITTING)
    for name, case in where.items()
]


@pytest.mark.parametrize("bad", [math.nan, pytest.param(math.inf, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("poison", "name", "stops_all"), CASES)
def test_stop_names_what_is_not_finite_and_changes_nothing(
    poison: Poison, name: str, stops_all: bool, bad: float
) -> None:
    learner, memory, problem = lesson("stop")
    before = weights_of(learner)
    poison(learner, memory, problem, bad)
    with pytest.raises(NonFiniteError, match=rf"(?s){name}\b.*") as caught:
        train(learner)
    assert any("training step 1" in note for note in caught.value.__notes__)
    changed = {k.split("/")[0] for k, t in weights_of(learner).items() if not t.equal(before[k])}
    # Those whose turn was before Q_r's have been moved, by finite numbers.
    assert changed <= (set() if stops_all else set(EVERYTHING) - {"q_r", "v_r"})
    assert all(tensor.isfinite().all() for tensor in learner.quantities.published().values())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(("poison", "name", "stops_all"), CASES)
def test_skip_leaves_weights_finite_and_goes_on(
    poison: Poison, name: str, stops_all: bool, bad: float, caplog: pytest.LogCaptureFixture
) -> None:
    learner, memory, problem = lesson("skip")
    before = weights_of(learner)
    restore = poison(learner, memory, problem, bad)
    train(learner)
    restore()
    assert learner.skipped == 1
    assert set(learner.fits) == (set() if stops_all else set(EVERYTHING) - {"q_r"})
    assert name.replace("\\", "") in caplog.text
    after = weights_of(learner)
    assert all(tensor.isfinite().all() for tensor in after.values())
    assert all(after[k].equal(before[k]) for k in after if stops_all or k.startswith("q_r/"))
    train(learner)
    assert set(learner.fits) == set(EVERYTHING)
    assert learner.skipped == 1
    learner.quantities.published()
    learner.state_dict()


def test_a_weight_that_is_not_finite_is_named_in_the_next_step_and_goes_nowhere() -> None:
    for on_nan in ("stop", "skip"):
        learner, _, _ = lesson(on_nan)
        overwrite(net(learner, "q_r").get_parameter("head.bias"), float("nan"))
        if on_nan == "stop":
            with pytest.raises(NonFiniteError, match=r"weight .*q_r\.head\.bias"):
                train(learner)
        else:
            train(learner)
            assert learner.skipped == 1
        with pytest.raises(NonFiniteError, match=r"published .*q_r\.head\.bias"):
            learner.quantities.published()
        with pytest.raises(NonFiniteError, match=r"saved .*networks/q_r/head\.bias"):
            learner.state_dict()
        with pytest.raises(NonFiniteError, match=r"weight .*q_r/head\.bias"):
            learner.refresh_targets()
        assert all(t.isfinite().all() for t in target_net(learner, "q_r").state_dict().values())


@pytest.mark.parametrize(
    ("poison", "name"),
    [
        (poison_target_weight, "target_networks/q_r/head.bias"),
        (poison_moment, "regressions/q_r/moments/0/exp_avg"),
    ],
    ids=["target network", "moment"],
)
def test_what_is_not_finite_is_never_saved(poison: Poison, name: str) -> None:
    learner, memory, problem = lesson()
    learner.state_dict()
    poison(learner, memory, problem, float("nan"))
    with pytest.raises(NonFiniteError, match=rf"saved .*{name}"):
        learner.state_dict()


def test_u_r_stays_finite_where_an_episode_is_over_and_nobody_has_power_any_more() -> None:
    learner, _, _ = lesson(
        further={
            "values": dict.fromkeys(("v_h_e", "q_r"), "test-flat"),
            "theory": {"xi": 10.0, "eta": 1.2},  # Float32 ends at 1e38, and 1e-4**-12 is 1e48.
        }
    )
    assert learner.targets is not None
    assert (learner._cache.values["u_r"] == 0).any(), "some successor is at the end"


def test_decisions_that_are_open_count_most() -> None:
    pi = torch.tensor([[0.5, 0.4, 0.1, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    available = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    found = decision_weight(pi, available, 0.01)
    raw = torch.tensor([0.26, 0.25, 0.10])
    torch.testing.assert_close(found[0], torch.cat([raw / raw.mean(), torch.zeros(1)]))
    # Each state counts as much as without these weights.
    torch.testing.assert_close(found.sum(1), available.sum(1).float())
    torch.testing.assert_close(found[2], torch.ones(4))


def test_all_actions_count_alike_while_the_robots_act_evenly_or_are_certain() -> None:
    available = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    even = torch.tensor([[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    certain = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    for pi in (even, certain):
        torch.testing.assert_close(decision_weight(pi, available, 0.0), available.float())


def test_the_learning_rate_is_the_config_s_or_else_the_value_network_s_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, _, _ = lesson(lr_schedule="constant")
    assert usual.lr["q_r"] == 1e-3, "that of any network"
    given, _, _ = lesson(lr=0.01, lr_schedule="linear", lr_constant_fraction=0.5)
    end, rates = Phase2Params.model_fields["total_steps"].default, []
    monkeypatch.setattr(given._collector, "collect", lambda training_step: [])
    for step in (0, end // 2, 3 * end // 4, end):
        given.steps = step
        given.advance()
        rates.append(given.lr["q_r"])
    assert rates == [0.01, 0.01, 0.005, 0.0]
    each: dict[Quantity, float] = {
        "v_h_e": 0.1, "x_h": 0.2, "u_r": 0.3, "q_r": 0.4, "v_r": 0.5,
    }  # fmt: skip
    apart, _, _ = lesson(lr=each, lr_schedule="constant")
    assert apart.lr == each


@pytest.mark.parametrize(
    ("further", "drawn"),
    [
        ({}, (256, True)),
        ({"replay": {"batch_size": 5, "sampling": "states"}}, (5, True)),
        ({"replay": {"sampling": "transitions"}}, (256, False)),
        ({"targets": {"max_pairs": 1}}, (256, False)),
    ],
)
def test_what_networks_learn_from_is_drawn_by_state_where_targets_are_expectations(
    further: dict[str, Any], drawn: tuple[int, bool]
) -> None:
    _, memory, _ = lesson(further=further)
    assert memory.drawn == [drawn]


def test_tables_learn_from_transitions_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlatNet, "is_table", True)
    _, memory, _ = lesson()
    assert memory.drawn == [(256, False)]


def test_targets_are_samples_where_joint_actions_are() -> None:
    spec = made(4, Form()).spec
    assert Targets().are_exact(spec)
    for drawn in (Targets(max_pairs=1), Targets(model_based=False)):
        assert not drawn.are_exact(spec)


def test_target_networks_are_asked_again_only_after_they_or_the_ids_of_states_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, memory, _ = lesson(target_interval=4)

    def renumber(training_step: int) -> list[Experience]:
        memory.renumberings += 1
        return []

    monkeypatch.setattr(learner._collector, "collect", renumber)
    asked: list[int] = []
    target_net(learner, "q_r").register_forward_pre_hook(lambda *_: asked.append(1))
    seen = []
    for step in range(1, 8):
        if step == 2:
            learner.advance()
        else:
            train(learner)
        seen.append(len(asked))
    assert seen == [0, 1, 1, 2, 2, 2, 2]  # Refreshed at the end of step 3.


def test_a_run_that_breaks_off_while_states_get_new_ids_saves_no_answers_about_the_old_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner, memory, _ = lesson()

    def renumber_and_fail(training_step: int) -> list[Experience]:
        memory.renumberings += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(learner._collector, "collect", renumber_and_fail)
    assert len(learner._cache)
    with pytest.raises(KeyboardInterrupt):
        learner.advance()
    assert not len(learner._cache)


@pytest.mark.parametrize(("is_table", "share"), [(False, 0.25), (True, 1.0)])
def test_target_networks_go_a_share_of_the_way_and_tables_all_of_it(
    is_table: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, _, _ = lesson(target_rate=0.25)
    if is_table:
        monkeypatch.setattr(FlatNet, "is_table", True)
    newest = net(learner, "q_r").state_dict()
    before = {name: old.clone() for name, old in target_net(learner, "q_r").state_dict().items()}
    assert any(not torch.equal(before[name], newest[name]) for name in newest)
    learner.refresh_targets()
    for name, now in target_net(learner, "q_r").state_dict().items():
        torch.testing.assert_close(now, before[name] + share * (newest[name] - before[name]))


def test_a_restored_learner_remembers_what_target_networks_said() -> None:
    learner, _, _ = lesson()
    other, _, _ = lesson()
    other.load_state_dict(learner.state_dict())
    overwrite(target_net(other, "q_r").get_parameter("head.bias"), float("nan"))
    train(learner)
    train(other)
    assert learner.targets is not None
    assert other.targets is not None
    assert torch.equal(learner.targets.q_r, other.targets.q_r)


def test_the_aggregator_adds_up_every_target(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, _, _ = lesson()
    sums: list[tuple[int, ...]] = []
    add = Adding.__call__

    def counted(self: Adding, values: Tensor, *others: Any, **options: Any) -> Tensor:
        sums.append(tuple(values.shape))
        return add(self, values, *others, **options)

    monkeypatch.setattr(Adding, "__call__", counted)
    train(learner)
    targets = learner.targets
    assert targets is not None
    slots, humans = targets.v_h_e.shape[1], learner.quantities.spec.humans
    # Q_r, V_h^e and U_r; what target networks say is known from the step before.
    assert sums == [
        (targets.items,), (targets.items, slots), (len(targets.q_r) * len(humans),),
    ]  # fmt: skip
