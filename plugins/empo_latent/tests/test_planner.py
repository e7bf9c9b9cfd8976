from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from reference_latent_planner import Asked, ReferencePlanner
from torch import Tensor

from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams, PlannerParams
from empo_latent.planner import Noise, Plan, Planner
from empo_latent.types import MultiTaskSpec
from empo_learning.distributions import BoundedNormal

Options = dict[str, Any]
Small = Callable[..., LatentParams]


class Field(NamedTuple):
    """A world where actions push a point, and steps pay by how near they come to a goal.

    Each dynamics head pushes, each reward head measures and each value head counts differently;
    tasks have goals of their own. Beyond a wall the episode is over.
    """

    active: Tensor
    goals: Tensor
    pushes: Tensor
    scales: Tensor
    offsets: Tensor
    wall: float = 10.0
    worth: float = 0.0
    optimism: float = 0.3
    terminates: bool = False

    def _goal(self, task: Tensor | None) -> Tensor:
        return self.goals[0] if task is None else self.goals[task]

    def next_latent(
        self, z: Tensor, action: Tensor, *, task: Tensor | None = None, split: bool = False
    ) -> Tensor:
        z = z if split else z.expand(len(self.pushes), *z.shape)
        return z + self.pushes.view(-1, *[1] * action.ndim) * action

    def reward(self, z: Tensor, action: Tensor, *, task: Tensor | None = None) -> Tensor:
        assert z.shape[:-1] == action.shape[:-1]
        distance = (z + 0.5 * action - self._goal(task)).square().sum(-1, keepdim=True)
        return -self.scales.view(-1, *[1] * distance.ndim) * distance

    def termination(self, next_z: Tensor, *, task: Tensor | None = None) -> Tensor:
        return (next_z.amax(-1, keepdim=True) > self.wall).to(next_z)

    def value(
        self,
        z: Tensor,
        action: Tensor | None = None,
        *,
        task: Tensor | None = None,
        network: str = "online",
        heads: Tensor | None = None,
    ) -> Tensor:
        offsets = self.offsets if heads is None else self.offsets[heads]
        at = z if action is None else z + 0.1 * action
        total = (at * (1.0 if network == "online" else -1.0)).sum(-1, keepdim=True)
        offsets = offsets.view(-1, *[1] * total.ndim)
        return self.worth * (1 + 0.1 * offsets) * total + offsets

    def policy(
        self, z: Tensor, *, task: Tensor | None = None, optimistic: bool = False
    ) -> BoundedNormal:
        loc = 0.5 * (self._goal(task) - z) + (self.optimism if optimistic else 0.0)
        active = None
        if not self.active.all():
            active = self.active[0] if task is None else self.active[task]
        return BoundedNormal(loc, torch.full_like(loc, -2.0), active=active)


def field(goal: list[list[float]] | None = None, heads: int = 1, **options: Any) -> Field:
    goals = torch.tensor(goal or [[0.3, -0.2]])
    number = torch.arange(float(heads))
    return Field(
        **{
            "active": torch.ones(goals.shape, dtype=torch.bool),
            "goals": goals,
            "pushes": 0.5 + 0.2 * number,
            "scales": 1 + 0.5 * number,
            "offsets": 0.1 * number,
            **options,
        }
    )


def few(**options: Any) -> PlannerParams:
    defaults = {"samples": 16, "elites": 5, "policy_plans": 4, "iterations": 3}
    return PlannerParams(**{**defaults, **options})


def planner(
    world: Field, params: PlannerParams, *, episodic: bool = False, **options: Any
) -> Planner:
    if episodic:
        world = world._replace(terminates=True)
    return Planner(world, params, **{"horizon": 3, "discount": 0.9, **options})


def start(envs: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.rand(envs, 2, generator=generator)
    return z, torch.rand(3, envs, 2, generator=generator) - 0.5


def drawn(planner: Planner, mean: Tensor, seed: int = 0) -> Noise:
    return planner.noise(mean, torch.Generator().manual_seed(seed))


def of_env(noise: Noise, env: int) -> Noise:
    proposals, draws = noise.proposals[:, [env]], noise.draws[:, :, [env]]
    return Noise(proposals, draws, noise.choice[[env]], noise.action[[env]], noise.heads)


HEADS = {"heads": 3, "worth": 0.4}
CASES: dict[str, tuple[Options, Options, Options]] = {
    # What the world, the parameters and the plan differ in.
    "one head": ({}, {}, {}),
    "mean of heads": (HEADS, {}, {}),
    "least of heads": (HEADS, {"heads": "min"}, {}),
    "greatest of heads": (HEADS, {"heads": "max"}, {}),
    "values of actions": (HEADS, {}, {"critic": "q"}),
    "terminations": ({**HEADS, "wall": 0.9}, {}, {"episodic": True}),
    "exploring": (HEADS, {"disagreement": 3.0}, {}),
    "no proposals": (HEADS, {"policy_plans": 0}, {}),
    "only proposals": (HEADS, {"policy_plans": 16}, {}),
    "two of three value heads": (HEADS, {"value_heads": 2}, {"value_heads": 3}),
    "one elite": (HEADS, {"elites": 1}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_plans_equal_those_of_plain_loops(name: str) -> None:
    of_world, of_params, options = CASES[name]
    world, params = field(**of_world), few(**of_params)
    explore = optimistic = name == "exploring"
    fast = planner(world, params, **options)
    z, mean = start(2)
    noise = drawn(fast, mean)

    plan = fast.plan(z, mean, explore=explore, optimistic=optimistic, noise=noise)

    options = {key: option for key, option in options.items() if key != "value_heads"}
    asked = Asked(0.9, explore=explore, optimistic=optimistic, **options)
    for env in range(2):
        found = ReferencePlanner(world, params, asked).plan(z[env], mean[:, env], noise, env)
        expected = plan.action[env], plan.mean[:, env], plan.std[env]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def tasks() -> tuple[Field, Tensor]:
    active = torch.tensor([[True, True], [True, False], [False, True]])
    goals = [[0.3, -0.2], [0.8, 0.1], [-0.5, 0.6]]
    return field(goals, heads=2, worth=0.3, active=active), torch.tensor([2, 0, 1, 2])


def test_every_task_has_its_discount_goal_and_actions_as_plain_loops_have_them() -> None:
    world, task = tasks()
    discounts, params = torch.tensor([0.9, 0.5, 0.99]), few()
    fast = planner(world, params, discount=discounts)
    z, mean = start(4)
    noise = drawn(fast, mean)

    plan = fast.plan(z, mean, task=task, explore=True, noise=noise)

    for env, one in enumerate(task.tolist()):
        asked = Asked(float(discounts[one]), task=one, active=world.active[one], explore=True)
        found = ReferencePlanner(world, params, asked).plan(z[env], mean[:, env], noise, env)
        expected = plan.action[env], plan.mean[:, env], plan.std[env]
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("explore", [False, True])
def test_numbers_that_a_task_does_not_use_stay_0(explore: bool) -> None:
    world, task = tasks()
    fast = planner(world, few())
    z, mean = start(4)

    plan = fast.plan(z, mean, task=task, explore=explore, noise=drawn(fast, mean))

    used = world.active[task]
    for found in (plan.action, plan.mean, plan.std):
        assert not found.masked_select(~used).any()
        assert found.masked_select(used).all()


@pytest.mark.parametrize("critic", ["v", "q"])
def test_plans_in_a_learned_model_equal_those_of_plain_loops(small: Small, critic: str) -> None:
    params = small(
        tasks=["gymnasium/Pendulum-v1"] * 2,
        num_envs=2,
        latents={"heads": 2},
        reward={"heads": 2, "episodic": True},
        value={"critic": critic, "heads": 3},
        # All are elites: where an episode ends early, plans are equally good, and any may be one.
        planner={"value_heads": 2, "disagreement": 1.0, "elites": 8},
        learning={"horizon": 2},
    )
    spec = MultiTaskSpec(
        words=3,
        pictures=False,
        shape=(3,),
        actions=2,
        active=((True, True), (False, True)),
        tasks=("one", "two"),
        action_repeats=(1, 1),
        episode_lengths=(10, 10),
    )
    generator = torch.Generator().manual_seed(0)
    model = LatentModel(params, spec, generator=generator, optimistic=True)
    with torch.no_grad():  # Heads start at 0, where all plans are worth the same.
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator)
        task, z = torch.tensor([1, 0]), torch.rand(2, 8, generator=generator)
        fast = Planner(
            model,
            params.planner,
            horizon=2,
            discount=torch.tensor([0.9, 0.8]),
            critic=params.value.critic,
            value_heads=3,
        )
        mean = torch.rand(2, 2, 2, generator=generator)
        noise = drawn(fast, mean)

        plan = fast.plan(z, mean, task=task, explore=True, optimistic=True, noise=noise)

        for env, one in enumerate(task.tolist()):
            asked = Asked(
                discount=[0.9, 0.8][one],
                episodic=True,
                critic=params.value.critic,
                task=one,
                active=model.active[one],
                explore=True,
                optimistic=True,
            )
            reference = ReferencePlanner(model, params.planner, asked)
            found = reference.plan(z[env], mean[:, env], noise, env)
            expected = plan.action[env], plan.mean[:, env], plan.std[env]
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_many_environments_are_planned_as_each_alone() -> None:
    world = field(heads=2, worth=0.3)
    fast = planner(world, few())
    z, mean = start(5)
    noise = drawn(fast, mean)

    plan = fast.plan(z, mean, explore=True, noise=noise)

    for env in range(5):
        alone = fast.plan(z[[env]], mean[:, [env]], explore=True, noise=of_env(noise, env))
        torch.testing.assert_close(alone.action[0], plan.action[env])
        torch.testing.assert_close(alone.mean[:, 0], plan.mean[:, env])


@pytest.mark.parametrize(
    ("goal", "best"),
    [
        # Half of an action is how far it goes, and every step pays for being near the goal.
        ([0.3, -0.2], [[0.6, -0.4], [0, 0], [0, 0]]),
        ([0.8, -0.6], [[1, -1], [0.6, -0.2], [0, 0]]),
    ],
)
@pytest.mark.parametrize("proposals", [0, 24])
def test_the_best_plan_is_found(goal: list[float], best: list[list[float]], proposals: int) -> None:
    params = PlannerParams(policy_plans=proposals, min_std=0.01, iterations=12)
    fast = planner(field([goal]), params)
    mean = torch.zeros(3, 1, 2)

    for seed in range(3):  # As in three steps at the same place.
        plan = fast.plan(torch.zeros(1, 2), mean, explore=False, noise=drawn(fast, mean, seed))
        mean = torch.cat([torch.zeros(1, 1, 2), plan.mean])[:3]  # The shift undone.

    torch.testing.assert_close(plan.mean[:, 0], torch.tensor(best).float(), rtol=0, atol=0.06)
    torch.testing.assert_close(plan.action[0], plan.mean[0, 0], rtol=0, atol=0.05)


def test_a_plan_starts_from_the_last_one_a_step_later() -> None:
    # Without spread, all that is tried is the mean itself.
    params = few(max_std=1e-6, min_std=0, policy_plans=0)
    fast = planner(field(), params)
    z, mean = start(2)

    plan = fast.plan(z, mean, explore=False)

    expected = torch.cat([mean[1:], torch.zeros(1, 2, 2)])
    torch.testing.assert_close(plan.mean, expected, rtol=0, atol=1e-5)
    assert plan.metrics["policy/planner_drift"] < 1e-5


def test_a_plan_from_zeros_does_not_depend_on_any_before() -> None:
    fast = planner(field(), few())
    z, mean = start(2)
    mean = mean * torch.tensor([0.0, 1.0])[:, None]  # The first environment starts anew.
    noise = drawn(fast, mean)

    plan = fast.plan(z, mean, explore=False, noise=noise)

    fresh = fast.plan(z, torch.zeros_like(mean), explore=False, noise=noise)
    torch.testing.assert_close(plan.mean[:, 0], fresh.mean[:, 0])
    assert not torch.allclose(plan.mean[:, 1], fresh.mean[:, 1])


def test_without_exploration_an_elite_is_followed_as_it_is() -> None:
    fast = planner(field(), few(elites=1))
    z, mean = start(2)
    noise = drawn(fast, mean)
    other = noise._replace(choice=noise.choice.flip(0), action=noise.action + 1)

    plans = [fast.plan(z, mean, explore=False, noise=each) for each in (noise, other)]

    torch.testing.assert_close(plans[0].action, plans[1].action, rtol=0, atol=0)
    torch.testing.assert_close(plans[0].action, plans[0].mean[0], rtol=0, atol=0)


def test_elites_are_followed_as_often_as_they_weigh() -> None:
    params = few(samples=3, elites=3, policy_plans=0, iterations=1, temperature=2.0)
    world = field()
    fast = planner(world, params)
    z, mean = start(1)
    noise = drawn(fast, mean)
    generator = torch.Generator().manual_seed(1)
    score = ReferencePlanner(world, params, Asked(0.9)).score
    shifted = torch.cat([mean[1:, 0], torch.zeros(1, 2)])
    plans = [(shifted + 2 * noise.draws[0, :, 0, i]).clamp(-1, 1) for i in range(3)]
    weights = torch.softmax(2 * torch.tensor([score(z[0], plan, noise) for plan in plans]), 0)

    counts = torch.zeros(3)
    for _ in range(300):
        noise.choice.exponential_(generator=generator)
        action = fast.plan(z, mean, explore=False, noise=noise).action[0]
        counts[[bool(torch.equal(action, plan[0])) for plan in plans].index(True)] += 1

    torch.testing.assert_close(counts / 300, weights, rtol=0, atol=0.08)


CHANGES: dict[str, tuple[Options, Options]] = {
    # What makes a difference in the parameters, and what else it takes.
    "iterations": ({"iterations": 4}, {}),
    "elites": ({"elites": 6}, {}),
    "policy_plans": ({"policy_plans": 5}, {}),
    "min_std": ({"min_std": 0.5}, {}),
    "max_std": ({"max_std": 1.0}, {}),
    "temperature": ({"temperature": 5.0}, {}),
    "exploration": ({"exploration": 0.1}, {"explore": True}),
    "heads": ({"heads": "min"}, {}),
    "value_heads": ({"value_heads": 1}, {}),
    "disagreement": ({"disagreement": 10.0}, {"explore": True}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_option_changes_plans(name: str) -> None:
    changed, options = CHANGES[name]
    world = field(heads=2, worth=0.4)

    def found(params: PlannerParams, **options: Any) -> Tensor:
        fast = planner(world, params, value_heads=2)
        z, mean = start(3)
        mean, numbers = mean[: fast.horizon], torch.Generator()
        noise = fast.noise(mean)
        for part in noise[:-1]:
            if part is not None:  # The same numbers for what has the same size.
                numbers.manual_seed(part.shape[-2])
                part.copy_(torch.rand(part.shape, generator=numbers))
        plan = fast.plan(z, mean, **{"explore": False, **options}, noise=noise)
        return torch.cat([plan.action, plan.mean[0]])

    usual = found(few(), **options)
    assert not torch.allclose(found(few(**changed), **options), usual)
    if options:  # Only in training.
        assert torch.equal(found(few(**changed)), found(few()))


@pytest.mark.parametrize("option", [{"critic": "q"}, {"episodic": True}, {"discount": 0.3}])
def test_what_the_model_is_changes_plans(option: Options) -> None:
    world = field(heads=2, worth=2.0, wall=0.9)
    z, mean = start(3)
    noise = drawn(planner(world, few()), mean)

    plans = [
        planner(world, few(), **o).plan(z, mean, explore=False, noise=noise) for o in (option, {})
    ]

    assert not torch.allclose(plans[0].mean, plans[1].mean)


def test_value_heads_are_drawn_anew_for_every_plan() -> None:
    fast = planner(field(heads=3), few(value_heads=2), value_heads=3)
    _, mean = start(1)

    pairs = {tuple(sorted(drawn(fast, mean, seed).heads.tolist())) for seed in range(20)}

    assert pairs == {(0, 1), (0, 2), (1, 2)}
    assert drawn(planner(field(heads=3), few(value_heads=3), value_heads=3), mean).heads is None


def test_the_optimistic_policy_proposes_when_asked() -> None:
    fast = planner(field(), few(policy_plans=16))
    z, mean = start(3)
    noise = drawn(fast, mean)

    plain, optimistic = (
        fast.plan(z, mean, explore=True, optimistic=o, noise=noise) for o in (False, True)
    )

    assert (optimistic.mean[0] > plain.mean[0]).all()


@pytest.mark.parametrize(("actions", "rounds"), [(1, 6), (19, 6), (20, 8)])
def test_large_actions_take_more_rounds_unless_the_parameters_say(
    actions: int, rounds: int
) -> None:
    assert planner(field(), PlannerParams()).rounds(actions) == rounds
    assert planner(field(), PlannerParams(iterations=3)).rounds(actions) == 3


def test_a_plan_that_ends_the_episode_gets_nothing_afterwards() -> None:
    # Every step costs, so it would be best to run into the wall, after which nothing costs.
    world = field([[-3.0, -3.0]], wall=0.4)
    params = PlannerParams(policy_plans=0)
    mean = torch.zeros(3, 1, 2)

    def plan(episodic: bool) -> Plan:
        fast = planner(world, params, episodic=episodic)
        return fast.plan(torch.zeros(1, 2), mean, explore=False, noise=drawn(fast, mean))

    assert plan(episodic=True).action.max() > 0.8
    assert plan(episodic=False).action.max() < -0.5


class Broken(NamedTuple):
    """A world in which nobody knows what comes of some actions."""

    world: Field
    limit: float

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def reward(self, z: Tensor, action: Tensor, *, task: Tensor | None = None) -> Tensor:
        found = self.world.reward(z, action)
        return found.masked_fill((action > self.limit).any(-1, keepdim=True), float("nan"))


def test_plans_that_cannot_be_judged_are_the_worst() -> None:
    fast = planner(Broken(field(), limit=0.0), PlannerParams(policy_plans=0))  # type: ignore[arg-type]
    z, mean = start(2)

    plan = fast.plan(z, mean * 0, explore=False, noise=drawn(fast, mean))

    assert (plan.action <= 0).all()
    assert all(metric.isfinite() for metric in plan.metrics.values())


def test_where_no_plan_can_be_judged_the_plan_is_not_a_number() -> None:
    fast = planner(Broken(field(), limit=-2.0), few())  # type: ignore[arg-type]
    z, mean = start(2)

    assert fast.plan(z, mean, explore=False).mean.isnan().all()


def test_metrics_tell_about_the_elites() -> None:
    params = few(policy_plans=16)
    world = field()
    fast = planner(world, params)
    z, mean = start(1)
    noise = drawn(fast, mean)

    plan = fast.plan(z, mean, explore=False, noise=noise)
    metrics = plan.metrics

    reference = ReferencePlanner(world, params, Asked(0.9))
    plans = [reference._proposal(z[0], noise, 0, i) for i in range(16)]
    scores = torch.tensor(sorted(reference.score(z[0], plan, noise) for plan in plans)[-5:])
    torch.testing.assert_close(metrics["policy/planner_elite_max"], scores.max())
    torch.testing.assert_close(metrics["policy/planner_elite_mean"], scores.mean())
    torch.testing.assert_close(metrics["policy/planner_elite_std"], scores.std(correction=0))
    torch.testing.assert_close(metrics["policy/planner_std"], plan.std.mean())
    assert metrics["policy/planner_policy_share_1"] == 1
    assert planner(field(), few(policy_plans=0)).plan(z, mean, explore=False).metrics.keys() == {
        "policy/planner_elite_max",
        "policy/planner_elite_mean",
        "policy/planner_elite_std",
        "policy/planner_drift",
        "policy/planner_std",
    }


def test_randomness_comes_from_the_generator_or_from_torch() -> None:
    fast = planner(field(), few())
    z, mean = start(2)

    def plan() -> Plan:
        return fast.plan(z, mean, explore=True)

    torch.manual_seed(3)
    first, second = plan(), plan()
    torch.manual_seed(3)

    assert torch.equal(plan().action, first.action)
    assert not torch.equal(first.action, second.action)
    assert torch.equal(drawn(fast, mean).draws, drawn(fast, mean).draws)
