"""The fair objective in plain Python, for games as tables; the oracle of the solver's tests.

Straight from its definition: one state at a time, moments instead of their roots, no logarithms
until the end. ``enumerated_moments`` and ``enumerated_capability`` have the same numbers as sums
over all trajectories, without any recursion.

``s`` is a state, ``g`` a position among the table's goals, ``h`` an agent that is human. A layer
says whether the robots still work. A profile has an action of every agent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import Literal, NamedTuple

from random_games import Item, Table

Policy = dict[int, float]
Policies = dict[int, Policy]
Profile = tuple[int, ...]
Adversary = Literal["others", "robot", "all"]
TIE = 1e-12


@dataclass(frozen=True)
class Fair:
    """The parameters; preset ``fair`` where nothing else is given."""

    beta_h: float = 5.0
    gamma_h: float = 0.99
    nu: float = 0.0
    robot_model: Literal["pessimistic", "optimistic", "even"] = "pessimistic"
    beta_r: float = 5.0
    gamma_r: float = 0.99
    zeta: float = 2.0
    xi: float = 1.0
    eta: float = 1.1
    x_agg: Literal["sum", "weighted"] = "sum"
    u_agg: Literal["sum", "mean"] = "sum"
    accrual: Literal["discrete", "continuous"] = "discrete"
    terminal_value: float = -1e-10
    rho: int = 1
    counting: Literal["presence", "arrival"] = "presence"
    early_end: Literal["stop", "absorb"] = "stop"
    delta: float = 0.0
    null_action: int = 0
    counts: tuple[int, ...] = ()
    """The humans of (8); none: all of them."""


class Values(NamedTuple):
    """Values and policies of a state: by goal, by human, and by the robots' joint action.

    ``moments`` are E Y^k for k = 0 to rho, ``after`` is E Y^rho of what follows a robot action.
    """

    v_m: dict[int, float]
    pi_h: Policies
    c: dict[int, float]
    x: dict[int, float]
    u: float
    after: dict[Profile, float]
    pi_r: dict[Profile, float]
    moments: list[float]

    @property
    def long_term_power(self) -> float:
        """L, in bits."""
        return -math.log2(self.moments[-1])


class FairReference:
    """Values of a table, computed when they are first asked for."""

    def __init__(self, table: Table, params: Fair) -> None:
        self.table, self.params = table, params
        agents = range(len(table.roles))
        self.humans = [agent for agent in agents if table.roles[agent] == "human"]
        self.robots = [agent for agent in agents if table.roles[agent] == "robot"]
        self.at = cache(self._at)

    def start(self) -> Values:
        """The values when an episode begins, with working robots."""
        return self.at(self.table.start, self.table.horizon, True)

    def goals_of(self, h: int) -> list[int]:
        """The goals of a human."""
        return [g for g, (human, _, _) in enumerate(self.table.goals) if human == h]

    def is_in(self, s: int, g: int) -> bool:
        """A state belongs to a goal."""
        return s in self.table.goals[g][2]

    def bits(self, values: Values) -> dict[int, float]:
        """I_h of each human; minus infinity where nothing can be attained."""
        return {h: math.log2(x) if x else -math.inf for h, x in values.x.items()}

    def aggregate_power(self, values: Values) -> float:
        """P, in bits."""
        return -math.log2(values.u) / self.params.eta

    def is_over(self, s: int, left: int | None) -> bool:
        """Nobody acts any more."""
        return left == 0 or not self.table.outcomes[s]

    def available(self, s: int, agent: int, is_working: bool) -> list[int]:
        """The actions of an agent; a defunct robot has one."""
        if agent in self.robots and not is_working:
            return [self.params.null_action]
        return sorted({profile[agent] for profile in self.table.outcomes[s]})

    def replies(self, s: int, is_working: bool) -> list[Profile]:
        """The joint actions of the robots."""
        return list(product(*(self.available(s, r, is_working) for r in self.robots)))

    def after(self, s: int, joint: Mapping[int, int], left: int | None, is_working: bool
              ) -> Iterator[tuple[float, float, int, int | None, bool]]:  # fmt: skip
        """Probability, duration, state, steps left and layer of all that may follow."""
        profile = tuple(joint[agent] for agent in sorted(joint))
        items: tuple[Item, ...] = self.table.outcomes[s][profile]
        for p, to, d in items:
            fails = 1 - (1 - self.params.delta) ** d if is_working else 1.0
            for share, layer in ((1 - fails, True), (fails, False)):
                if share:
                    yield p * share, d, to, None if left is None else left - 1, layer

    def profiles(self, policies: Policies) -> Iterator[tuple[dict[int, int], float]]:
        """What agents that act independently do together, and how likely that is."""
        for choice in product(*(policy.items() for policy in policies.values())):
            chance = math.prod(p for _, p in choice)
            if chance:
                yield dict(zip(policies, (a for a, _ in choice), strict=True)), chance

    def with_replies(self, pi_r: Mapping[Profile, float]) -> Iterator[tuple[dict[int, int], float]]:
        """What the robots do together, and how likely that is."""
        for reply, chance in pi_r.items():
            if chance:
                yield dict(zip(self.robots, reply, strict=True)), chance

    def average(self, pi_h: Policies) -> Policies:
        """Each human's policy over all its goals, by their weights."""
        mean = Policies()
        for h in self.humans:
            weight = {g: self.table.goals[g][1] for g in self.goals_of(h)}
            total = sum(weight.values())
            mean[h] = {
                a: sum(weight[g] * pi_h[g][a] for g in weight) / total
                for a in next(iter(pi_h[g] for g in weight))
            }
        return mean

    def capability(self, s: int, g: int, d: float, value: float) -> float:
        """What reaching a state counts for a goal: w(s, g), or the bracket of (6)."""
        if self.params.counting == "arrival" and self.is_in(s, g):
            return 1.0
        return float(self.params.gamma_h**d * value)

    def _at(self, s: int, left: int | None, is_working: bool) -> Values:
        params, goals = self.params, range(len(self.table.goals))
        presence = params.counting == "presence"
        if self.is_over(s, left):
            c = {g: float(presence and self.is_in(s, g)) for g in goals}
            x, u = self.powers(c)
            y = self._end(u, left) if presence else -params.terminal_value
            return Values(c, {}, c, x, u, {}, {}, [y**k for k in range(params.rho + 1)])

        def follow(joint: dict[int, int]) -> list[tuple[float, float, int, Values]]:
            return [
                (p, d, to, self.at(to, steps, layer))
                for p, d, to, steps, layer in self.after(s, joint, left, is_working)
            ]

        replies = self.replies(s, is_working)
        v_m, pi_h = dict[int, float](), Policies()
        for g in goals:
            h = self.table.goals[g][0]
            own = self.available(s, h, is_working)
            if self.is_in(s, g):
                v_m[g], pi_h[g] = float(presence), {a: float(a == own[0]) for a in own}
                continue
            even = {
                k: self._evenly(actions)
                for k in self.humans
                if k != h and (actions := self.available(s, k, is_working))
            }
            q = dict.fromkeys(own, 0.0)
            for a in own:
                for joint, chance in self.profiles(even):
                    payoffs = [
                        sum(
                            p * self.capability(to, g, d, after.v_m[g])
                            for p, d, to, after in follow(
                                joint | {h: a} | dict(zip(self.robots, reply, strict=True))
                            )
                        )
                        for reply in replies
                    ]
                    q[a] += chance * self._expected_of_robots(payoffs)  # (1)
            pi_h[g] = self._human_policy(q)  # (2)
            v_m[g] = sum(pi_h[g][a] * q[a] for a in own)  # (3)

        mean = self.average(pi_h)
        expected = {
            reply: [
                (chance * p, d, after)
                for joint, chance in self.profiles(mean)
                for p, d, _, after in follow(joint | dict(zip(self.robots, reply, strict=True)))
            ]
            for reply in replies
        }
        later = {
            reply: sum(p * params.gamma_r ** (params.rho * d) * v.moments[-1] for p, d, v in ends)
            for reply, ends in expected.items()
        }
        best = min(later.values())
        weight = {reply: (value / best) ** -params.beta_r for reply, value in later.items()}
        pi_r = {reply: w / sum(weight.values()) for reply, w in weight.items()}
        c = {}
        for g in goals:
            humans = mean | {self.table.goals[g][0]: pi_h[g]}
            c[g] = sum(
                chance * share * p * self.capability(to, g, d, after.c[g])
                for joint, chance in self.profiles(humans)
                for reply, share in self.with_replies(pi_r)
                for p, d, to, after in follow(joint | reply)
            )
            if presence and self.is_in(s, g):
                c[g] = 1.0
        x, u = self.powers(c)
        moments = [
            sum(
                pi_r[reply] * p * math.comb(k, j) * (self.accrued(d) * u) ** (k - j)
                * params.gamma_r ** (j * d) * after.moments[j]
                for reply, ends in expected.items() for p, d, after in ends for j in range(k + 1)
            )
            for k in range(params.rho + 1)
        ]  # fmt: skip
        return Values(v_m, pi_h, c, x, u, later, pi_r, moments)

    def _evenly(self, actions: list[int]) -> Policy:
        return dict.fromkeys(actions, 1 / len(actions))

    def _expected_of_robots(self, payoffs: list[float]) -> float:
        if self.params.robot_model == "even":
            return sum(payoffs) / len(payoffs)
        return min(payoffs) if self.params.robot_model == "pessimistic" else max(payoffs)

    def _human_policy(self, q: Policy) -> Policy:
        best, beta = max(q.values()), self.params.beta_h
        if math.isinf(beta):
            weight = {a: float(v >= best - TIE * max(1.0, abs(best))) for a, v in q.items()}
        else:
            weight = {a: math.exp(beta * (v - best)) for a, v in q.items()}
        nu, total = self.params.nu, sum(weight.values())
        return {a: nu / len(q) + (1 - nu) * w / total for a, w in weight.items()}

    def power(self, h: int, c: Mapping[int, float]) -> float:
        """X_h."""
        weighted = self.params.x_agg == "weighted"
        return sum(
            (self.table.goals[g][1] if weighted else 1.0) * c[g] ** self.params.zeta
            for g in self.goals_of(h)
        )

    def powers(self, c: Mapping[int, float]) -> tuple[dict[int, float], float]:
        """X_h of each human, and u, which is -U_r."""
        x = {h: self.power(h, c) for h in self.humans}
        counted = [x[h] for h in self.params.counts or self.humans]
        lack = sum(v**-self.params.xi if v else math.inf for v in counted)
        if self.params.u_agg == "mean":
            lack /= len(counted)
        return x, lack**self.params.eta

    def accrued(self, d: float) -> float:
        """How much u counts during a transition."""
        rate = -math.log(self.params.gamma_r)
        if self.params.accrual == "discrete":
            return 1.0
        return d if rate == 0 else -math.expm1(-rate * d) / rate

    def _end(self, u: float, left: int | None) -> float:
        """Y of an end: once, or for all the steps that are left."""
        y, gamma_r = self.accrued(1.0) * u, self.params.gamma_r
        if self.params.early_end == "stop" or left == 0:
            return y
        if left is None:
            return y / (1 - gamma_r)
        return y * sum(gamma_r**i for i in range(left + 1))


def together(*parts: Sequence[tuple[dict[int, int], float]]) -> list[tuple[dict[int, int], float]]:
    """What groups of agents that act independently do together, and how likely that is."""
    return [
        ({agent: a for joint, _ in choice for agent, a in joint.items()},
         math.prod(p for _, p in choice))
        for choice in product(*parts)
    ]  # fmt: skip


class Diagnostics:
    """Who holds the power, counted and with layers as in the solution."""

    def __init__(self, reference: FairReference) -> None:
        self.solved = reference

    def alone(self) -> Values:
        """The values at the start where robots never work."""
        table = self.solved.table
        return self.solved.at(table.start, table.horizon, False)

    def guarded_bits(self, h: int, adversary: Adversary, penalty: float) -> float:
        """I_h with C^lambda in place of C."""
        solved, table = self.solved, self.solved.table
        value = self._adversarial(h, adversary, penalty)
        x = solved.power(h, {g: value(table.start, table.horizon, True, g)
                             for g in solved.goals_of(h)})  # fmt: skip
        return math.log2(x) if x else -math.inf

    def _adversarial(
        self, h: int, adversary: Adversary, penalty: float
    ) -> Callable[[int, int | None, bool, int], float]:
        solved, presence = self.solved, self.solved.params.counting == "presence"

        @cache
        def value(s: int, left: int | None, is_working: bool, g: int) -> float:
            if presence and solved.is_in(s, g):
                return 1.0
            if solved.is_over(s, left):
                return 0.0
            here = solved.at(s, left, is_working)
            mean = solved.average(here.pi_h)
            others = list(solved.profiles({k: p for k, p in mean.items() if k != h}))
            robots, nobody = list(solved.with_replies(here.pi_r)), [({}, 1.0)]
            own = [({h: a}, p) for a, p in here.pi_h[g].items() if p]
            hostile = together(
                nobody if adversary == "robot" else others,
                nobody if adversary == "others" else robots,
            )
            modelled = together(
                own,
                others if adversary == "robot" else nobody,
                robots if adversary == "others" else nobody,
            )
            w = [
                sum(
                    q * chance * solved.capability(to, g, d, value(to, steps, layer, g))
                    for joint, q in modelled
                    for chance, d, to, steps, layer in solved.after(s, b | joint, left, is_working)
                )
                for b, _ in hostile
            ]
            if not penalty:
                return min(w)
            lack = sum(p * 2 ** (-v / penalty) for (_, p), v in zip(hostile, w, strict=True))
            return max(0.0, -penalty * math.log2(lack))  # A chance, if rounding might add to 1.

        return value

    def common_goals(self) -> list[dict[int, int]]:
        """Goals with equal states in every human's list, each with the number it has there."""
        reached = self._reached()
        goals = [states & reached for _, _, states in self.solved.table.goals]
        first, *others = self.solved.humans
        common, sets = [], set[frozenset[int]]()
        for g in self.solved.goals_of(first):
            if not goals[g] or goals[g] in sets:
                continue
            sets.add(goals[g])
            same = {h: [k for k in self.solved.goals_of(h) if goals[k] == goals[g]]
                    for h in others}  # fmt: skip
            if all(same.values()):
                common.append({first: g} | {h: ks[0] for h, ks in same.items()})
        return common

    def _reached(self) -> frozenset[int]:
        """The states that an episode may get to."""
        table = self.solved.table
        newest = reached = {table.start}
        for _ in range(len(table.outcomes) if table.horizon is None else table.horizon):
            newest = {to for s in newest for items in table.outcomes[s].values()
                      for _, to, _ in items}  # fmt: skip
            reached = reached | newest
        return frozenset(reached)

    def joint_capability(
        self, coalition: tuple[int, ...], goal: Mapping[int, int], *,
        is_best: bool = False, states: frozenset[int] | None = None,
    ) -> float:  # fmt: skip
        """C_K(start, g), or the envelope C*_K, of humans with the same goal, or for some states."""
        solved, table = self.solved, self.solved.table
        presence = solved.params.counting == "presence"
        states = table.goals[goal[coalition[0]]][2] if states is None else states

        def capability(s: int, d: float, after: float) -> float:
            return 1.0 if s in states and not presence else solved.params.gamma_h**d * after

        @cache
        def value(s: int, left: int | None, is_working: bool) -> float:
            if presence and s in states:
                return 1.0
            if solved.is_over(s, left):
                return 0.0
            here = solved.at(s, left, is_working)
            mean = solved.average(here.pi_h)
            joint_policies = {
                h: (here.pi_h[goal[h]] if h in coalition else p) for h, p in mean.items()
            }
            of_members = dict[tuple[int, ...], float]()
            chance_of = dict[tuple[int, ...], float]()
            everything = {h: dict.fromkeys(p, 1.0) if h in coalition else p
                          for h, p in mean.items()}  # fmt: skip
            for joint, chance in solved.profiles(everything):
                members = tuple(joint[h] for h in coalition)
                chance_of[members] = math.prod(joint_policies[h][joint[h]] for h in coalition)
                of_members[members] = of_members.get(members, 0.0) + sum(
                    chance * share * p * capability(to, d, value(to, steps, layer))
                    for reply, share in solved.with_replies(here.pi_r)
                    for p, d, to, steps, layer in solved.after(s, joint | reply, left, is_working)
                )
            if is_best:
                return max(of_members.values())
            return sum(chance_of[members] * v for members, v in of_members.items())

        return value(table.start, table.horizon, True)

    def coalition_values(self) -> dict[tuple[int, ...], float]:
        """v(K) of every coalition."""
        return {
            coalition: sum(
                self.joint_capability(coalition, goal) ** self.solved.params.zeta
                for goal in self.common_goals()
            )
            for size in range(1, len(self.solved.humans) + 1)
            for coalition in combinations(self.solved.humans, size)
        }

    def shares(self) -> dict[int, float]:
        """The Shapley value: what each human adds, over all orders in which they may join."""
        v, humans = self.coalition_values() | {(): 0.0}, self.solved.humans
        n, shares = len(humans), dict.fromkeys(humans, 0.0)
        for h in humans:
            for coalition in v:
                if h not in coalition:
                    k = len(coalition)
                    factor = math.factorial(k) * math.factorial(n - k - 1) / math.factorial(n)
                    shares[h] += factor * (v[tuple(sorted((*coalition, h)))] - v[coalition])
        return shares


def unaware_power(knowing: FairReference, unaware: FairReference) -> float:
    """P at the start where humans act as in one game, and robots as in another."""

    @cache
    def value(s: int, left: int | None, is_working: bool, g: int) -> float:
        presence = knowing.params.counting == "presence"
        if presence and knowing.is_in(s, g):
            return 1.0
        if knowing.is_over(s, left):
            return 0.0
        here, h = knowing.at(s, left, is_working), knowing.table.goals[g][0]
        pi_r = unaware.at(s, left, is_working).pi_r
        return sum(
            chance * share * p * knowing.capability(to, g, d, value(to, steps, layer, g))
            for joint, chance in knowing.profiles(knowing.average(here.pi_h) | {h: here.pi_h[g]})
            for reply, share in knowing.with_replies(pi_r)
            for p, d, to, steps, layer in knowing.after(s, joint | reply, left, is_working)
        )

    table = knowing.table
    c = {g: value(table.start, table.horizon, True, g) for g in range(len(table.goals))}
    return -math.log2(knowing.powers(c)[1]) / knowing.params.eta


class Step(NamedTuple):
    """One step of a trajectory: a state, its layer, the duration until the next state."""

    state: int
    left: int | None
    is_working: bool
    duration: float


def trajectories(
    solved: FairReference, policies: Callable[[Values], Policies]
) -> Iterator[tuple[float, list[Step]]]:
    """All trajectories from the start, with their chances; the last step has no duration."""

    def follow(
        p: float, s: int, left: int | None, is_working: bool, before: list[Step]
    ) -> Iterator[tuple[float, list[Step]]]:
        if solved.is_over(s, left):
            yield p, [*before, Step(s, left, is_working, 0.0)]
            return
        here = solved.at(s, left, is_working)
        for joint, chance in solved.profiles(policies(here)):
            for reply, share in solved.with_replies(here.pi_r):
                for q, d, to, steps, layer in solved.after(s, joint | reply, left, is_working):
                    path = [*before, Step(s, left, is_working, d)]
                    yield from follow(p * chance * share * q, to, steps, layer, path)

    yield from follow(1.0, solved.table.start, solved.table.horizon, True, [])


def enumerated_moments(solved: FairReference) -> list[float]:
    """E Y^k at the start for k = 0 to rho, as a sum over trajectories."""
    params, totals = solved.params, [0.0] * (solved.params.rho + 1)
    for p, path in trajectories(solved, lambda values: solved.average(values.pi_h)):
        y, discount = 0.0, 1.0
        for step in path[:-1]:
            values = solved.at(step.state, step.left, step.is_working)
            y += discount * solved.accrued(step.duration) * values.u
            discount *= params.gamma_r**step.duration
        end = path[-1]
        y += discount * solved.at(end.state, end.left, end.is_working).moments[1]
        for k in range(params.rho + 1):
            totals[k] += p * y**k
    return totals


def enumerated_capability(solved: FairReference, g: int) -> float:
    """E gamma_h^(time until a goal is first entered), as a sum over trajectories."""
    total, h = 0.0, solved.table.goals[g][0]
    for p, path in trajectories(
        solved, lambda values: solved.average(values.pi_h) | {h: values.pi_h[g]}
    ):
        discount = 1.0
        for step in path:
            if solved.is_in(step.state, g):
                total += p * discount
                break
            discount *= solved.params.gamma_h**step.duration
    return total
