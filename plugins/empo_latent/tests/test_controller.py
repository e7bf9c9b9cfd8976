from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from empo_core.errors import NonFiniteError, StorageError
from empo_latent.controller import Controller, ControllerOutput, unbounded
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Planner
from empo_latent.types import MultiTaskSpec
from empo_learning.distributions import BoundedNormal

Small = Callable[..., LatentParams]
ENVS, WORDS = 3, 4


class Scene:
    """An agent whose networks say something, and what it sees."""

    def __init__(
        self,
        params: LatentParams,
        *,
        tasks: int = 1,
        optimistic: bool = False,
        pictures: bool = False,
    ) -> None:
        active = ((True, True), (True, False))[:tasks]
        shape = (3, 64, 64) if pictures else (WORDS,)
        self.spec = MultiTaskSpec(
            words=int(np.prod(shape)),
            pictures=pictures,
            shape=shape,
            actions=2,
            active=active,
            tasks=("one", "two")[:tasks],
            action_repeats=(1,) * tasks,
            episode_lengths=(10,) * tasks,
        )
        generator = torch.Generator().manual_seed(0)
        self.params = params
        self.model = LatentModel(params, self.spec, generator=generator, optimistic=optimistic)
        with torch.no_grad():  # Heads start at 0, where all plans are worth the same.
            for weight in self.model.parameters():
                weight += 0.3 * torch.randn(weight.shape, generator=generator)
        self.planner = Planner(
            self.model,
            params.planner,
            horizon=params.learning.horizon,
            discount=torch.full((tasks,), 0.9),
            critic=params.value.critic,
        )
        self.task = torch.tensor([0, 1, 1]) if tasks > 1 else None
        numbers = np.random.default_rng(0)
        if pictures:
            self.seen = numbers.integers(0, 255, (ENVS, self.spec.words), dtype=np.uint8)
        else:
            self.seen = numbers.normal(size=(ENVS, WORDS)).astype(np.float32)

    def controller(self) -> Controller:
        return Controller(self.model, self.planner, envs=ENVS, device="cpu")

    def act(
        self, controller: Controller | None = None, seed: int = 0, **options: Any
    ) -> ControllerOutput:
        torch.manual_seed(seed)
        usual = {"task": self.task, "actor": "planner", "explore": False}
        seen, first = options.pop("seen", self.seen), options.pop("first", np.zeros(ENVS, bool))
        return (controller or self.controller()).act(seen, first, **{**usual, **options})

    def z(self) -> Tensor:
        with torch.no_grad():
            return self.model.encode(torch.from_numpy(self.seen), task=self.task)


@pytest.fixture
def scene(small: Small) -> Scene:
    return Scene(small())


@pytest.mark.parametrize("actor", ["planner", "policy"])
@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.parametrize(
    "groups",
    [
        {},
        {"latents": {"heads": 2}, "reward": {"heads": 2, "episodic": True}},
        {"value": {"critic": "q"}},
        {"encoder": {"channels": 2}},
    ],
    ids=["plain", "heads", "q", "pictures"],
)
def test_actions_are_bounded_numbers_on_the_cpu(
    small: Small, actor: str, explore: bool, groups: dict[str, Any]
) -> None:
    scene = Scene(small(**groups), pictures="encoder" in groups)

    acted = scene.act(actor=actor, explore=explore, expert=True)

    assert acted.action.shape == (ENVS, 2)
    assert (acted.action.dtype, acted.action.device.type) == (torch.float32, "cpu")
    assert acted.action.abs().max() <= 1
    assert acted.expert is not None
    assert acted.expert.isfinite().all()
    assert not acted.action.requires_grad
    assert len(set(acted.action[:, 0].tolist())) == ENVS


def test_the_planner_plans_where_the_environments_are(scene: Scene) -> None:
    acted = scene.act(explore=True)

    torch.manual_seed(0)
    with torch.no_grad():
        plan = scene.planner.plan(scene.z(), torch.zeros(3, ENVS, 2), explore=True)
    torch.testing.assert_close(acted.action, plan.action)
    assert acted.metrics.keys() == plan.metrics.keys()
    assert all(metric.shape == () for metric in acted.metrics.values())


def test_the_policy_does_what_is_likeliest_or_draws(scene: Scene) -> None:
    with torch.no_grad():
        policy = scene.model.policy(scene.z())
    torch.manual_seed(0)
    drawn = policy.bounded(policy.sample())

    torch.testing.assert_close(scene.act(actor="policy").action, policy.loc.tanh())
    torch.testing.assert_close(scene.act(actor="policy", explore=True).action, drawn)


def test_plans_go_on_until_an_episode_begins(scene: Scene) -> None:
    controller = scene.controller()
    scene.act(controller)
    mean = controller.state_dict()["mean"]
    first = np.array([False, True, False])

    scene.act(controller, first=first)

    torch.manual_seed(0)
    with torch.no_grad():
        kept = mean * torch.tensor([1.0, 0.0, 1.0])[:, None]
        expected = scene.planner.plan(scene.z(), kept, explore=False).mean
    torch.testing.assert_close(controller.state_dict()["mean"], expected)
    assert mean.any()


def test_plans_are_forgotten_when_the_policy_acts(scene: Scene) -> None:
    controller = scene.controller()
    scene.act(controller)

    scene.act(controller, actor="policy")

    assert not controller.state_dict()["mean"].any()


def test_acting_goes_on_where_it_was_saved(scene: Scene) -> None:
    controller, other = scene.controller(), scene.controller()
    scene.act(controller)
    state = controller.state_dict()
    expected = scene.act(controller, seed=1).action

    other.load_state_dict(state)

    assert torch.equal(scene.act(other, seed=1).action, expected)
    assert not torch.equal(scene.act(seed=1).action, expected)


def test_plans_of_other_environments_are_refused(scene: Scene) -> None:
    state = Controller(scene.model, scene.planner, envs=2, device="cpu").state_dict()

    with pytest.raises(StorageError, match=r"\(3, 2, 2\).*\(3, 3, 2\).*num_envs"):
        scene.controller().load_state_dict(state)


def test_tasks_act_with_what_they_use(small: Small) -> None:
    scene = Scene(small(), tasks=2)
    assert scene.task is not None

    for actor in ("planner", "policy"):
        acted = scene.act(actor=actor, explore=True, expert=True)
        assert acted.action[0].all()
        assert not acted.action[1:, 1].any()
        assert acted.action[1:, 0].all()
        same = scene.act(actor=actor, explore=True, task=scene.task.numpy()).action
        assert torch.equal(acted.action, same)
    assert not torch.allclose(acted.action, scene.act(task=1 - scene.task).action)


def test_the_optimistic_policy_proposes_in_training_alone(small: Small) -> None:
    groups = {"planner": {"policy_plans": 8, "samples": 8}}
    scene, other = (Scene(small(**groups), optimistic=o) for o in (True, False))
    shared = other.model.state_dict()
    scene.model.load_state_dict(shared, strict=False)

    assert torch.equal(scene.act().action, other.act().action)
    assert not torch.allclose(scene.act(explore=True).action, other.act(explore=True).action)
    found = (each.act(actor="policy", explore=True).action for each in (scene, other))
    assert torch.equal(*found)


def test_the_policy_is_its_own_expert(small: Small) -> None:
    scene = Scene(small())

    expert = scene.act(actor="policy", expert=True).expert

    with torch.no_grad():
        policy = scene.model.policy(scene.z())
    assert expert is not None
    torch.testing.assert_close(expert[:, 0], policy.loc)
    torch.testing.assert_close(expert[:, 1], policy.log_std)


def test_the_planner_is_an_expert_as_the_policy_is_bounded(small: Small) -> None:
    scene = Scene(small())

    controller = scene.controller()
    expert = scene.act(controller, expert=True).expert

    mean = controller.state_dict()["mean"][0]
    assert expert is not None
    torch.testing.assert_close(expert[:, 0].tanh(), mean)
    assert scene.act().expert is None


def test_experts_are_what_they_would_be_if_deviations_were_small() -> None:
    mean, std = torch.tensor([[-0.9, 0.0, 0.5]]), torch.full((1, 3), 1e-3)

    tanh = unbounded(mean, std, BoundedNormal(mean, mean))

    torch.testing.assert_close(tanh[:, 0], mean.atanh())
    torch.testing.assert_close(tanh[:, 1].exp(), std / (1 - mean**2), rtol=1e-3, atol=0)


def test_experts_at_the_bounds_are_finite() -> None:
    mean, std = torch.tensor([[-1.0, 1.0, 1.0, 0.0]]), torch.tensor([[0.05, 2.0, 0.0, 2.0]])
    active = torch.tensor([True, True, True, False])

    found = unbounded(mean, std, BoundedNormal(mean, mean, active=active))

    assert found.isfinite().all()
    assert (found[0, 0, :3].abs() > 3).all()
    assert found[0, 1, 0].exp().item() == pytest.approx(0.98, abs=0.01)
    assert not found[..., 3].any()


@pytest.mark.parametrize("actor", ["planner", "policy"])
def test_weights_that_are_not_numbers_are_told(scene: Scene, actor: str) -> None:
    with torch.no_grad():
        scene.model.dynamics.weights[0].fill_(float("nan"))
        scene.model.parts["policy"].weights[0].fill_(float("nan"))

    with pytest.raises(NonFiniteError, match=rf"{actor}.* environment 0.*optimiser\.lr"):
        scene.act(actor=actor)


def test_observations_that_are_not_numbers_are_told(scene: Scene) -> None:
    seen = scene.seen.copy()
    seen[1, 2] = np.inf

    with pytest.raises(NonFiniteError, match="environment 1 shows numbers"):
        scene.act(seen=seen)
