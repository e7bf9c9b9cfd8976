"""Made-up batches of every form that a replay can give, and small networks that value them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from doors import aggregator
from reference_targets import PlainTargets, ReferenceTargets
from reference_values import ReferenceValues
from torch import Tensor, nn

from empo_core.protocols import ValueNetwork
from empo_core.types import AgentSpec, Goal, Quantity, ValueQuery, WorldSpec
from empo_phase2.experience import States, Transitions
from empo_phase2.goal_index import GoalIndex
from empo_phase2.params import Phase2Theory
from empo_phase2.quantities import Quantities, TargetCache
from empo_phase2.targets import BatchTargets, TargetComputer
from empo_phase2.warmup import ScheduledTheory

EVERYTHING: tuple[Quantity, ...] = ("v_h_e", "x_h", "u_r", "q_r", "v_r")
WORDS = 3
THEORY = Phase2Theory(zeta=2.0, xi=1.5, eta=1.1)
SETTING = ScheduledTheory(gamma_h=0.9, gamma_r=0.8, beta_r=3.0)

MIXES: list[tuple[Quantity, ...]] = [
    tuple(q for q in EVERYTHING if q in ("v_h_e", *some))
    for size in range(1, 5)
    for some in itertools.combinations(("x_h", "u_r", "q_r", "v_r"), size)
    if {"q_r", "v_r"} & set(some)
]


class SmallNet(ValueNetwork):
    """Values of the right sign that depend on everything that is asked, in double precision."""

    def __init__(self, quantity: Quantity, spec: WorldSpec, hidden: int = 5) -> None:
        super().__init__()
        self.quantity: Quantity = quantity
        self.calls = 0
        outputs = spec.num_robot_actions if quantity == "q_r" else 1
        self.body = nn.Linear(spec.state_words + 1, hidden)
        self.head = nn.Linear(hidden, outputs)
        self.goal = nn.Embedding(max(1, len(spec.goals)), hidden)
        self.human = nn.Embedding(len(spec.agents), hidden)
        self.double()

    def forward(self, query: ValueQuery) -> Tensor:
        self.calls += 1
        asked = query.spread()
        numbers = torch.cat([asked.states, asked.steps_left[:, None]], 1).double()
        hidden = self.body(numbers)
        if asked.goal is not None:
            hidden = hidden + self.goal(asked.goal)
        if asked.human is not None:
            hidden = hidden + self.human(asked.human)
        raw: Tensor = self.head(torch.tanh(hidden))
        if self.quantity in ("v_h_e", "x_h"):
            return torch.sigmoid(raw)
        return -nn.functional.softplus(raw) - 0.01


@dataclass(frozen=True)
class Form:
    """Sizes and options of a random batch."""

    transitions: int = 4
    humans: int = 2
    robots: int = 1
    layouts: int = 1
    goals: int = 2
    states: int = 9
    fewest_successors: int = 0
    most_successors: int = 3
    horizon: int | None = 4
    expectation: str = "all"  # all profiles; one "sampled" profile; "free" of a model


@dataclass(frozen=True)
class Made:
    """A batch, and everything around it."""

    form: Form
    spec: WorldSpec
    slots: GoalIndex
    states: States
    batch: Transitions
    uniform: Tensor

    def networks(self, learned: Iterable[Quantity] = EVERYTHING) -> dict[Quantity, SmallNet]:
        return {quantity: SmallNet(quantity, self.spec) for quantity in learned}

    def batched(
        self,
        networks: dict[Quantity, SmallNet],
        theory: Phase2Theory,
        setting: ScheduledTheory,
        cache: TargetCache | None = None,
    ) -> BatchTargets:
        quantities = Quantities(dict(networks), self.spec, self.slots, theory, aggregator())
        model_based = self.form.expectation != "free"
        compute = TargetComputer(quantities, model_based=model_based, cache=cache)
        return compute(self.batch, self.states.at, setting, self.uniform)

    def plain(
        self, networks: dict[Quantity, SmallNet], theory: Phase2Theory, setting: ScheduledTheory
    ) -> ReferenceTargets:
        model_based = self.form.expectation != "free"
        values = ReferenceValues(self.spec, self.slots, theory, dict(networks), setting)
        return ReferenceTargets(values, model_based)


def made(seed: int, form: Form) -> Made:
    """A batch of a form, the same for the same seed."""
    torch.manual_seed(seed)
    spec, slots = _world(form)
    states = _states(form, spec, slots)
    batch = _batch(form, spec, slots, states)
    uniform = torch.rand(form.transitions, dtype=torch.float64)
    return Made(form, spec, slots, states, batch, uniform)


def _world(form: Form) -> tuple[WorldSpec, GoalIndex]:
    humans = [AgentSpec(name=f"h{i}", role="human", actions=("a", "b", "c")[: 2 + i % 2])
              for i in range(form.humans)]  # fmt: skip
    robots = [AgentSpec(name=f"r{i}", role="robot", actions=("a", "b", "c")[: 3 - i % 2])
              for i in range(form.robots)]  # fmt: skip
    # A robot between the humans, so that positions and indices of humans differ.
    agents = (humans[0], *robots, *humans[1:])
    indices = [i for i, agent in enumerate(agents) if agent.role == "human"]
    width = form.goals * form.humans
    human = torch.arange(form.humans).repeat_interleave(form.goals)
    goals = tuple(
        Goal(human=indices[int(h)], name=f"{layout}-{i}", weight=1.0)
        for layout in range(form.layouts)
        for i, h in enumerate(human)
    )
    goal = torch.arange(len(goals)).view(form.layouts, width)
    weight = torch.rand(form.layouts, width, dtype=torch.float64) + 0.1
    if form.goals > 1:
        # One slot per world is empty, and one goal counts nothing; the first of each is sound.
        for layout in range(1, form.layouts):
            goal[layout, width - 1], weight[layout, width - 1] = -1, 0.0
        weight[0, width - 1] = 0.0
    spec = WorldSpec(
        name="made up",
        agents=agents,
        goals=goals,
        state_words=WORDS,
        state_dtype=torch.int16,
        horizon=form.horizon,
    )
    return spec, GoalIndex(human, goal, weight)


def _states(form: Form, spec: WorldSpec, slots: GoalIndex) -> States:
    number, actions = form.states, spec.num_robot_actions
    layout = torch.arange(number) % form.layouts
    terminal = torch.rand(number) < 0.2
    terminal[: form.layouts] = False  # Something must be able to start in each world.
    available = torch.rand(number, actions) < 0.7
    available[:, 0] = True
    exists = slots.goal[layout] >= 0
    return States(
        rows=torch.randint(-3, 4, (number, WORDS), dtype=torch.int16),
        layout=layout,
        terminal=terminal,
        achieved=(torch.rand(number, len(slots.human)) < 0.3) & exists,
        available=available & ~terminal[:, None],
    )


def _batch(form: Form, spec: WorldSpec, slots: GoalIndex, states: States) -> Transitions:
    count, actions = form.transitions, spec.num_robot_actions
    alive = torch.nonzero(~states.terminal)[:, 0]
    state = alive[torch.randint(len(alive), (count,))]
    profiles = spec.num_human_actions if form.expectation == "all" else 1
    action = states.available[state].double().multinomial(1)[:, 0]
    # Pairs without successors: actions that do not exist, and now and then any other.
    number = torch.randint(
        form.fewest_successors, form.most_successors + 1, (count, profiles, actions)
    )
    number = number * states.available[state][:, None, :]
    if form.expectation == "free":
        number = torch.nn.functional.one_hot(action, actions)[:, None, :]
    offsets = torch.nn.functional.pad(number.flatten().cumsum(0), (1, 0))
    owner = torch.arange(count * profiles * actions).repeat_interleave(number.flatten())
    source = state[owner // (profiles * actions)]
    # Successors stay in their world; many are the same.
    per_layout = [torch.nonzero(states.layout == k)[:, 0] for k in range(form.layouts)]
    successor = torch.tensor(
        [int(_any(per_layout[int(states.layout[s])])) for s in source], dtype=torch.int64
    )
    prob = torch.rand(len(owner), dtype=torch.float64) + 0.05
    total = torch.zeros(len(offsets) - 1, dtype=torch.float64).index_add(0, owner, prob)
    most = max(spec.num_actions[human] for human in spec.humans)
    own = torch.tensor([spec.num_actions[human] for human in spec.humans])[slots.human]
    policy = torch.rand(count, len(slots.human), most, dtype=torch.float64)
    policy = policy * (torch.arange(most) < own[:, None])
    policy = policy / policy.sum(-1, keepdim=True)
    acts_for = torch.rand(count, len(slots.human)) < (1.0 if form.expectation == "all" else 0.6)
    behaviour = torch.rand(count, actions, dtype=torch.float64) * states.available[state]
    behaviour = behaviour / behaviour.sum(-1, keepdim=True)
    return Transitions(
        state=state,
        steps_left=torch.randint(1, (form.horizon or 1) + 1, (count,)),
        human_policy=policy if form.expectation == "all" else policy[:, :0],
        acts_for=acts_for,
        behaviour=behaviour if form.expectation == "free" else behaviour[:, :0],
        action=action,
        offsets=offsets,
        successor=successor,
        prob=prob / total[owner],
    )


def _any(of: Tensor) -> Tensor:
    return of[torch.randint(len(of), ())]


def assert_same(actual: BatchTargets, plain: PlainTargets) -> None:
    """Equal wherever an error counts."""
    for field in fields(PlainTargets):
        name = field.name
        batched, expected = getattr(actual, name), getattr(plain, name)
        if batched is None:
            continue
        if name in ("q_r", "v_h_e"):
            counts = getattr(plain, f"{name}_weight") > 0
            batched, expected = batched[counts], expected[counts]
        torch.testing.assert_close(
            batched.double(), expected, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )
