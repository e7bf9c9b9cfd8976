"""The exact solver's power-law robots and a robot that PPO trained, on one world.

Run it with ``python examples/compare_ppo_with_exact.py [STEPS] [RUNS]``: PPO takes so many steps
(100,000 by default), and its run is kept in the folder ``RUNS`` (``runs``).

The reward of PPO is U_r of the exact solution for one value of beta_r, which stays as it is; the
humans act as that solution says. All policies are then judged by the same number: the expected
discounted sum of that U_r over an episode, computed exactly, state by state and backwards in
time. ``best`` is the largest there is, and ``of best`` how much of the way there a policy goes
that begins where robots act at random (beta_r = 0).
"""

import sys
from collections.abc import Callable

import rich
import torch
from rich.table import Table
from torch import Tensor

from empo_core.components import build
from empo_core.config import RunConfig, WorldModelRef
from empo_core.experiment import run
from empo_core.protocols import WorldModel
from empo_exact.plugin import ExactParams
from empo_exact.policies import SolvedHumans, SolvedPower, SolvedRobots
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_rollout.world_policies import LearnedRobots
from empo_theory.parameters import CompleteTheory
from empo_worlds.row_table import RowTable

WORLD = {"name": "multigrid/trivial", "params": {"max_steps": 8}}
THEORY = {"beta_h": 5.0, "gamma_r": 0.95}
REWARD_BETA = 5.0
"""The beta_r of the solution whose U_r is the reward."""
BETAS = (0.0, 1.0, 5.0, 20.0, 100.0)

Policy = Callable[[Tensor, Tensor], Tensor]
"""From states and steps left to the probability of each joint robot action."""


class Judge:
    """Knows what U_r a policy of the robots gets, when humans act as in one solution."""

    def __init__(self, world: WorldModel, solution: ExactResult) -> None:
        self._world, self._solution = world, solution
        self._power, self._humans = SolvedPower(solution), SolvedHumans(solution)
        spec = world.spec
        joint = torch.arange(spec.num_joint_actions)
        actions = [
            joint // step % n for step, n in zip(spec.strides, spec.num_actions, strict=True)
        ]
        self._actions = torch.stack(actions, 1)
        self._robot_action, stride = torch.zeros_like(joint), 1
        for robot in spec.robots:
            self._robot_action += stride * self._actions[:, robot]
            stride *= spec.num_actions[robot]

    def __call__(self, policy: Policy | None) -> tuple[float, list[float]]:
        """The expected discounted U_r of an episode, and that of each first action.

        Args:
            policy: What is judged; None means the best there is.
        """
        gamma = self._solution.params.theory.gamma_r
        table, values = RowTable.of(self._world.initial_state().numpy()[None]), torch.zeros(1)
        q = torch.zeros(1, self._world.spec.num_robot_actions)
        for left in range(1, (self._world.spec.horizon or 1) + 1):
            states = self._solution.reachable_states(left)
            found = self._world.transitions(states)
            number = torch.from_numpy(table.find(found.states.numpy())).long()
            goes_on = (number >= 0) & (left > 1)
            paid = torch.zeros(len(number), dtype=torch.float64)
            if goes_on.any():
                rows = found.states[goes_on]
                later = self._power(rows, torch.full((len(rows),), left - 1))
                paid[goes_on] = later + gamma * values[number[goes_on]]
            paid = paid * found.prob * self._chances(states, left).flatten()[found.segments.index]
            pair = torch.zeros(found.num_pairs, dtype=torch.float64)
            pair.index_add_(0, found.segments.index, paid)
            q = torch.zeros(len(states), self._world.spec.num_robot_actions, dtype=torch.float64)
            q.index_add_(1, self._robot_action, pair.view(len(states), -1))
            if policy is None:
                values = q.masked_fill(~self._available(states), -torch.inf).amax(1)
            else:
                values = (policy(states, torch.full((len(states),), left)) * q).sum(1)
            table = RowTable.of(states.numpy())
        return float(values[0]), q[0].tolist()

    def _chances(self, states: Tensor, left: int) -> Tensor:
        """How likely the humans do their part of each joint action, whatever they want."""
        spec = self._world.spec
        policy = self._humans.policy(states, torch.full((len(states),), left))
        chances = torch.ones(len(states), spec.num_joint_actions, dtype=torch.float64)
        for human in spec.humans:
            goals = list(spec.goals_of(human))
            weight = torch.tensor([spec.goals[goal].weight for goal in goals]).double()
            mean = (policy[:, goals] * (weight / weight.sum())[:, None]).sum(1)
            chances *= mean[:, self._actions[:, human]]
        return chances

    def _available(self, states: Tensor) -> Tensor:
        """Which joint robot actions there are."""
        available = self._world.available(states)
        joint = torch.ones(len(states), 1, dtype=torch.bool)
        for robot in self._world.spec.robots:
            own = available[:, robot, : self._world.spec.num_actions[robot]]
            joint = (own[:, :, None] & joint[:, None, :]).flatten(1)
        return joint


def learned(world: WorldModel, steps: int, runs: str) -> LearnedRobots:
    """The robots that PPO trains."""
    exact = {"theory": {**THEORY, "beta_r": REWARD_BETA}, "rollouts": 0}
    copies = {
        "reward": {"kind": "power", "algorithm": {"name": "exact", "params": exact}},
        "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 5.0}}},
        "goal_resample_prob": 1.0,
    }
    config = {
        "world_model": WORLD,
        "runs": runs,
        "algorithm": {
            "name": "rollout",
            "params": {
                "total_steps": steps,
                "environment": {"name": "world", "params": copies},
                "num_envs": 256,
                "vectorisation": {"async_factor": 1},
                "experience": {"bptt_horizon": 8},
                "gamma": THEORY["gamma_r"],
                "update": {"minibatch_size": 512, "update_epochs": 4},
                "optimiser": {"lr": 1e-3, "lr_schedule": "linear"},
            },
        },
    }
    return LearnedRobots(world, run(RunConfig.model_validate(config)).policy)


def main() -> None:
    """Solve, learn, judge, print."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    runs = sys.argv[2] if len(sys.argv) > 2 else "runs"
    world = build(WorldModelRef.model_validate(WORLD))
    solutions = {
        beta: solve(world, ExactParams(theory=CompleteTheory(**THEORY, beta_r=beta)))
        for beta in {*BETAS, REWARD_BETA}
    }
    judge = Judge(world, solutions[REWARD_BETA])
    best, q = judge(None)
    policies: dict[str, Policy] = {
        f"beta_r = {beta:g}": SolvedRobots(solutions[beta]).policy for beta in BETAS
    }
    policies[f"PPO, {steps:,} steps"] = learned(world, steps, runs).policy
    worst, _ = judge(policies["beta_r = 0"])
    spec = world.spec
    table = Table(title=f"{spec.name}: first action, and expected discounted U_r")
    table.add_column("policy", no_wrap=True)
    for name in (*spec.agents[spec.robots[0]].actions, "U_r", "of best"):
        table.add_column(name, justify="right", no_wrap=True)
    start, left = world.initial_state()[None], torch.tensor([spec.horizon])
    for name, policy in policies.items():
        chances, (value, _) = policy(start, left)[0].tolist(), judge(policy)
        share = f"{(value - worst) / (best - worst):.1%}"
        table.add_row(name, *(f"{chance:.3f}" for chance in chances), f"{value:.3f}", share)
    table.add_section()
    table.add_row("best", *(f"{value:.2f}" for value in q), f"{best:.3f}", "100.0%")
    rich.print(table)
    print("The last line shows what is possible after each first action.")


if __name__ == "__main__":
    main()
