"""The equations of EMPO in plain Python: the answer the fast solver is compared with.

Dictionaries, loops and one number at a time, over the pairs (time, state) one by one. Written
from the paper's Table 1 and to be read beside it; it is no part of the shipped package. Its
numbers are Python floats, or ``mpmath`` numbers of any precision.

Conventions on top of the table: reaching a goal pays 1, undiscounted, and ends that goal's
story; a goal that is already achieved has V_h^m = 0 and its human takes the first available
action; terminal states have V_h^m = V_h^e = 0 and V_r = ``terminal_value``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import mpmath
import torch

from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec

State = tuple[int, ...]
Profile = tuple[int, ...]
Moment = tuple[int, State]
"""A time and a state; time stays 0 where there is no horizon."""
Number = Any
"""A float or an mpmath number."""
TIES = 1e-12
"""Values of Q_h^m this close together are equally good for a perfectly rational human."""


@dataclass(frozen=True)
class Floats:
    """Ordinary double precision."""

    def number(self, value: float) -> Number:
        return float(value)

    def exp(self, value: Number) -> Number:
        return math.exp(value)

    def log(self, value: Number) -> Number:
        return math.log(value)


@dataclass(frozen=True)
class Precise:
    """Numbers of 50 digits (inside ``mpmath.workdps``)."""

    def number(self, value: float) -> Number:
        return mpmath.mpf(value)

    def exp(self, value: Number) -> Number:
        return mpmath.exp(value)

    def log(self, value: Number) -> Number:
        return mpmath.log(value)


Beliefs = Callable[[State, int, int], Sequence[tuple[float, Sequence[int]]]]
"""From (state, human, own action) to (probability, profile with -1 for itself and robots)."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The symbols of the paper; ``beta_h`` and ``nu`` may be functions of (state, goal)."""

    beta_h: float | Callable[[State, int], float] = 10.0
    gamma_h: float = 1.0
    gamma_r: float = 1.0
    beta_r: float = 10.0
    zeta: float = 1.0
    xi: float = 1.0
    eta: float = 1.0
    terminal_value: float = -1e-10
    x_agg: Literal["weighted", "sum"] = "weighted"
    u_agg: Literal["mean", "sum"] = "mean"
    accrual: Literal["discrete", "continuous"] = "discrete"
    optimistic: bool = False
    nu: float | Callable[[State, int], float] = 0.0
    habit: Callable[[State, int], Sequence[float]] | None = None
    beliefs: Beliefs | None = None
    prior: Callable[[State, int, int], Sequence[float]] | None = None
    """Given human policies instead of Phase 1, from (state, steps left, goal)."""


@dataclass
class Values:
    """Everything the equations define at one moment; lists follow ``spec.goals``."""

    terminal: bool
    V_r: Number
    V_m: list[Number]
    V_e: list[Number]
    pi_h: list[list[Number]] = field(default_factory=list)
    X_h: dict[int, Number] = field(default_factory=dict)
    U_r: Number = None
    Q_r: list[Number | None] = field(default_factory=list)
    pi_r: list[Number] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """One successor of a state under a joint action."""

    prob: float
    state: State
    duration: float


@dataclass
class Rules:
    """One state's transitions, asked from the world once."""

    available: list[list[int]]
    outcomes: dict[Profile, list[Outcome]]
    achieved: list[bool]


class Game:
    """A world, unrolled in time from its initial state by asking for one state at a time."""

    def __init__(self, world: WorldModel, horizon: int | None) -> None:
        self.spec: WorldSpec = world.spec
        if any(agent.role == "other" for agent in world.spec.agents):
            raise ValueError("every agent must be a human or a robot")
        if not world.spec.humans:
            raise ValueError("there is no human")
        self.world = world
        self.horizon = horizon
        self.rules: dict[State, Rules] = {}
        self.root: Moment = (0, tuple(world.initial_state().tolist()))
        self.order = self._topological_order()

    def ask(self, state: State) -> Rules:
        """The rules that hold in one state."""
        if state not in self.rules:
            row = torch.tensor([state], dtype=self.spec.state_dtype)
            flags = self.world.available(row)[0].tolist()
            available = [[a for a, is_there in enumerate(line) if is_there] for line in flags]
            outcomes = {}
            for profile in itertools.product(*available):
                found = self.world.transitions(row, torch.tensor([profile]))
                rows = [tuple(words) for words in found.states.tolist()]
                durations = [1.0] * len(rows) if found.duration is None else found.duration.tolist()
                items = zip(found.prob.tolist(), rows, durations, strict=True)
                outcomes[profile] = [Outcome(*item) for item in items]
            self.rules[state] = Rules(available, outcomes, self.world.achieved(row)[0].tolist())
        return self.rules[state]

    def terminal(self, moment: Moment) -> bool:
        """True if the moment is terminal: no step follows."""
        return moment[0] == self.horizon or not any(self.ask(moment[1]).available)

    def next(self, moment: Moment, state: State) -> Moment:
        """The moment of a successor state."""
        return (0 if self.horizon is None else moment[0] + 1, state)

    def successors(self, moment: Moment) -> list[Moment]:
        """All distinct moments that can follow."""
        if self.terminal(moment):
            return []
        found = self.ask(moment[1]).outcomes.values()
        return list(
            dict.fromkeys(self.next(moment, item.state) for items in found for item in items)
        )

    def _topological_order(self) -> list[Moment]:
        """Every reachable moment, successors first (depth-first search)."""
        done: dict[Moment, None] = {}
        open_moments: set[Moment] = {self.root}
        stack: list[tuple[Moment, Iterator[Moment]]] = [
            (self.root, iter(self.successors(self.root)))
        ]
        while stack:
            moment, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                done[moment] = None
                open_moments.discard(moment)
                stack.pop()
            elif following in open_moments:
                raise ValueError(f"the world has a cycle through {following[1]} and no horizon")
            elif following not in done:
                open_moments.add(following)
                stack.append((following, iter(self.successors(following))))
        return list(done)

    def sizes(self) -> tuple[int, int, int]:
        """States, terminal states and distinct state-to-state edges of the unrolled graph."""
        terminal = sum(self.terminal(moment) for moment in self.order)
        edges = sum(len(self.successors(moment)) for moment in self.order)
        return len(self.order), terminal, edges


class ReferenceSolver:
    """Both phases, by backward induction; call :meth:`solve`."""

    def __init__(self, game: Game, params: Parameters, numbers: Floats | Precise) -> None:
        self.game, self.params, self.numbers = game, params, numbers
        self.spec = game.spec
        self.gamma_h = numbers.number(params.gamma_h)
        self.gamma_r = numbers.number(params.gamma_r)
        self.values: dict[Moment, Values] = {}

    def solve(self) -> dict[Moment, Values]:
        """Values at every reachable moment."""
        for moment in self.game.order:
            self.values[moment] = self._values(moment)
        return self.values

    def _values(self, moment: Moment) -> Values:
        zero = self.numbers.number(0)
        nothing = [zero for _ in self.spec.goals]
        if self.game.terminal(moment):
            last = self.numbers.number(self.params.terminal_value)
            return Values(True, last, list(nothing), list(nothing))
        values = Values(False, zero, [], list(nothing))
        for goal in range(len(self.spec.goals)):
            v_m, policy = self._phase_1(moment, goal)
            values.V_m.append(v_m)
            values.pi_h.append(policy)
        self._phase_2(moment, values)
        return values

    # Phase 1: equations (1) to (3).

    def _phase_1(self, moment: Moment, goal: int) -> tuple[Number, list[Number]]:
        number = self.numbers.number
        _, state = moment
        rules = self.game.ask(state)
        human = self.spec.goals[goal].human
        actions = rules.available[human]
        policy = [number(0)] * self.spec.num_actions[human]
        if self.params.prior is not None:
            steps_left = 0 if self.game.horizon is None else self.game.horizon - moment[0]
            given = self.params.prior(state, steps_left, goal)
            policy = [number(p) for p in given[: len(policy)]]
        if rules.achieved[goal]:
            if self.params.prior is None:
                policy[actions[0]] = number(1)
            return number(0), policy
        quality = {a: self._q_m(moment, goal, a) for a in actions}
        if self.params.prior is None:
            for a, probability in self._boltzmann(quality, state, goal).items():
                policy[a] = probability
            policy = self._with_habit(policy, state, goal)
        return sum((policy[a] * quality[a] for a in actions), number(0)), policy

    def _q_m(self, moment: Moment, goal: int, own_action: int) -> Number:
        """Equation (1), with the worst (or best) joint robot action inside the beliefs."""
        number = self.numbers.number
        human = self.spec.goals[goal].human
        rules = self.game.ask(moment[1])
        pick = max if self.params.optimistic else min
        total = number(0)
        for probability, others in self._beliefs(moment[1], human, own_action):
            profile = list(others)
            profile[human] = own_action
            replies = []
            for robots in itertools.product(*(rules.available[r] for r in self.spec.robots)):
                for robot, action in zip(self.spec.robots, robots, strict=True):
                    profile[robot] = action
                replies.append(self._prospect(moment, tuple(profile), goal, "V_m"))
            total += number(probability) * pick(replies)
        return total

    def _beliefs(
        self, state: State, human: int, own_action: int
    ) -> Iterator[tuple[Number, Sequence[int]]]:
        """A human's beliefs about the other humans' actions; uniform by default."""
        if self.params.beliefs is not None:
            yield from self.params.beliefs(state, human, own_action)
            return
        rules = self.game.ask(state)
        others = [h for h in self.spec.humans if h != human]
        profiles = list(itertools.product(*(rules.available[h] for h in others)))
        for actions in profiles:
            profile = [-1] * len(self.spec.agents)
            for other, action in zip(others, actions, strict=True):
                profile[other] = action
            yield self.numbers.number(1) / len(profiles), profile

    def _prospect(self, moment: Moment, profile: Profile, goal: int, which: str) -> Number:
        """The expected payoff of a joint action: 1 for arriving, else what the state is worth."""
        number = self.numbers.number
        total = number(0)
        for item in self.game.ask(moment[1]).outcomes[profile]:
            if self.game.ask(item.state).achieved[goal]:
                payoff = number(1)
            else:
                later = getattr(self.values[self.game.next(moment, item.state)], which)[goal]
                payoff = self.gamma_h ** number(item.duration) * later
            total += number(item.prob) * payoff
        return total

    def _boltzmann(self, quality: dict[int, Number], state: State, goal: int) -> dict[int, Number]:
        beta = self.params.beta_h
        beta = beta(state, goal) if callable(beta) else beta
        best = max(quality.values())
        if math.isinf(beta):
            scale = max(self.numbers.number(1), abs(best))
            ties = [a for a, q in quality.items() if best - q <= TIES * scale]
            return {a: self.numbers.number(1) / len(ties) for a in ties}
        beta = self.numbers.number(beta)
        weight = {a: self.numbers.exp(beta * (q - best)) for a, q in quality.items()}
        total = sum(weight.values())
        return {a: w / total for a, w in weight.items()}

    def _with_habit(self, policy: list[Number], state: State, goal: int) -> list[Number]:
        """The mixture of equation (2); without a given habit, people fidget uniformly."""
        nu = self.params.nu
        if nu == 0:
            return policy
        nu = self.numbers.number(nu(state, goal) if callable(nu) else nu)
        available = self.game.ask(state).available[self.spec.goals[goal].human]
        habit = [self.numbers.number(a in available) / len(available) for a in range(len(policy))]
        if self.params.habit is not None:
            given = self.params.habit(state, goal)[: len(policy)]
            habit = [self.numbers.number(p) for p in given]
        return [nu * h + (1 - nu) * p for h, p in zip(habit, policy, strict=True)]

    # Phase 2: equations (4) to (9).

    def _phase_2(self, moment: Moment, values: Values) -> None:
        spec = self.spec
        rules = self.game.ask(moment[1])
        marginal = {h: self._marginal(h, values.pi_h) for h in spec.humans}
        available = list(itertools.product(*(rules.available[r] for r in spec.robots)))
        quality, accrued = {}, {}
        for robots in available:
            quality[robots], accrued[robots] = self._q_r(moment, robots, marginal)
        policy = self._power_law(quality)
        for goal in range(len(spec.goals)):
            values.V_e[goal] = self._v_e(moment, goal, values.pi_h[goal], marginal, policy)
        values.X_h = {h: self._x_h(h, values.V_e) for h in spec.humans}
        values.U_r = self._u_r(values.X_h)
        values.V_r = sum(
            policy[robots] * (values.U_r * accrued[robots] + quality[robots])
            for robots in available
        )
        sizes = [range(spec.num_actions[r]) for r in spec.robots]
        for digits in itertools.product(*reversed(sizes)):
            # Robot 0 is the fastest digit of the joint index, product's last digit is.
            robots = tuple(reversed(digits))
            values.Q_r.append(quality.get(robots))
            values.pi_r.append(policy.get(robots, self.numbers.number(0)))

    def _marginal(self, human: int, pi_h: list[list[Number]]) -> list[Number]:
        """A human's policy averaged over its goals."""
        goals = self.spec.goals_of(human)
        weights = [self.numbers.number(self.spec.goals[g].weight) for g in goals]
        return [
            sum(w * pi_h[g][a] for w, g in zip(weights, goals, strict=True)) / sum(weights)
            for a in range(self.spec.num_actions[human])
        ]

    def _human_profiles(
        self, policies: dict[int, list[Number]]
    ) -> Iterator[tuple[Number, dict[int, int]]]:
        """Every joint action of the humans that can happen, with its probability."""
        for actions in itertools.product(*(range(len(p)) for p in policies.values())):
            chosen = dict(zip(policies, actions, strict=True))
            probability = self.numbers.number(1)
            for human, action in chosen.items():
                probability *= policies[human][action]
            if probability > 0:
                yield probability, chosen

    def _joint(self, robots: Profile, humans: dict[int, int]) -> Profile:
        chosen = humans | dict(zip(self.spec.robots, robots, strict=True))
        return tuple(chosen[agent] for agent in range(len(self.spec.agents)))

    def _q_r(
        self, moment: Moment, robots: Profile, marginal: dict[int, list[Number]]
    ) -> tuple[Number, Number]:
        """Equation (4), and how much U_r counts until the next state (equation 9: once)."""
        number = self.numbers.number
        total, accrued = number(0), number(0)
        for probability, humans in self._human_profiles(marginal):
            for item in self.game.ask(moment[1]).outcomes[self._joint(robots, humans)]:
                p = probability * number(item.prob)
                later = self.values[self.game.next(moment, item.state)].V_r
                total += p * self.gamma_r ** number(item.duration) * later
                accrued += p * self._accrual(item.duration)
        return total, (number(1) if self.params.accrual == "discrete" else accrued)

    def _accrual(self, duration: float) -> Number:
        """The integral of exp(-rho t) over a transition."""
        if self.gamma_r == 1:
            return self.numbers.number(duration)
        rho = -self.numbers.log(self.gamma_r)
        return (1 - self.gamma_r ** self.numbers.number(duration)) / rho

    def _power_law(self, quality: dict[Profile, Number]) -> dict[Profile, Number]:
        """Equation (5), through logarithms."""
        beta = self.numbers.number(self.params.beta_r)
        logits = {robots: -beta * self.numbers.log(-q) for robots, q in quality.items()}
        largest = max(logits.values())
        weight = {robots: self.numbers.exp(x - largest) for robots, x in logits.items()}
        total = sum(weight.values())
        return {robots: w / total for robots, w in weight.items()}

    def _v_e(
        self,
        moment: Moment,
        goal: int,
        own_policy: list[Number],
        marginal: dict[int, list[Number]],
        policy: dict[Profile, Number],
    ) -> Number:
        """Equation (6)."""
        policies = marginal | {self.spec.goals[goal].human: own_policy}
        total = self.numbers.number(0)
        for p_humans, humans in self._human_profiles(policies):
            for robots, p_robots in policy.items():
                if p_robots > 0:
                    profile = self._joint(robots, humans)
                    total += p_humans * p_robots * self._prospect(moment, profile, goal, "V_e")
        return total

    def _x_h(self, human: int, v_e: list[Number]) -> Number:
        """Equation (7)."""
        number = self.numbers.number
        zeta = number(self.params.zeta)
        total = number(0)
        for goal in self.spec.goals_of(human):
            weight = self.spec.goals[goal].weight if self.params.x_agg == "weighted" else 1
            total += number(weight) * v_e[goal] ** zeta
        if total == 0:
            raise ValueError(f"human {human} cannot reach any goal: X_h = 0")
        return total

    def _u_r(self, x_h: dict[int, Number]) -> Number:
        """Equation (8)."""
        number = self.numbers.number
        lack = sum((x ** -number(self.params.xi) for x in x_h.values()), number(0))
        if self.params.u_agg == "mean":
            lack /= len(x_h)
        return -(lack ** number(self.params.eta))


def reference_solve(
    world: WorldModel,
    params: Parameters | None = None,
    *,
    horizon: int | None = None,
    digits: int | None = None,
) -> tuple[Game, dict[Moment, Values]]:
    """The unrolled game and the values at each of its moments.

    Args:
        world: Any world model.
        params: Symbols of the equations; None takes the neutral ones.
        horizon: Steps; None takes the world's own, and a world without one must be acyclic.
        digits: Decimal digits to compute with; None computes with floats.
    """
    game = Game(world, world.spec.horizon if horizon is None else horizon)
    params = params or Parameters()
    if digits is None:
        return game, ReferenceSolver(game, params, Floats()).solve()
    with mpmath.workdps(digits):
        return game, ReferenceSolver(game, params, Precise()).solve()
