"""All explorers of a config: those of the robots, and those of each human."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.components import build
from empo_core.config import ExplorerRef
from empo_core.protocols import Explorer, Weights
from empo_core.trees import StateDict
from empo_core.types import Scene, WorldSpec
from empo_phase2.experience import Block
from empo_phase2.params import Exploration
from empo_phase2.warmup import WarmUpSchedule
from empo_worlds.policy_checks import refuse_wrong_choice

_PREFIX = "explorers."


class ComposedExplorer:
    """Explorers of the same agents, applied one after the other; may be empty."""

    def __init__(self, refs: Sequence[ExplorerRef], spec: WorldSpec, agents: Sequence[int]) -> None:
        self.explorers: list[Explorer] = [build(ref, spec, tuple(agents)) for ref in refs]
        owners = " and ".join(spec.agents[agent].name for agent in agents)
        self._names = [f"explorer {ref.name!r} of {owners}" for ref in refs]

    def __bool__(self) -> bool:
        """True where there are any."""
        return bool(self.explorers)

    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """Action probabilities to act with.

        Raises:
            SolveError: if an explorer gives no probabilities of available actions.
        """
        for explorer, name in zip(self.explorers, self._names, strict=True):
            policy = explorer.explore(policy, scene, generator)
            refuse_wrong_choice(policy, scene.available, scene.states, name)
        return policy

    def observe(self, scene: Scene, choice: Int[Tensor, " env"]) -> None:
        """Pass the choices that were made to all."""
        for explorer in self.explorers:
            explorer.observe(scene, choice)


class ExplorerSet:
    """The explorers of an actor, or those that a learner trains for its actors.

    Attributes:
        robots: Change the robots' joint policy.
        humans: Change the policy of each human, in the order of ``spec.humans``.
    """

    def __init__(self, exploration: Exploration, spec: WorldSpec) -> None:
        """Build the explorers, for rows as the learner stores them, in actors too."""
        self.robots = ComposedExplorer(exploration.robot, spec, spec.robots)
        self.humans = [ComposedExplorer(exploration.human, spec, (human,)) for human in spec.humans]
        composed = {"robots": self.robots} | {
            f"human_{human}": member for human, member in zip(spec.humans, self.humans, strict=True)
        }
        self._named: dict[str, Explorer] = {
            f"{name}.{i}": explorer
            for name, member in composed.items()
            for i, explorer in enumerate(member.explorers)
        }
        self._learned: dict[str, tuple[Explorer, int | None]] = {
            f"{name}.{i}": (explorer, None if name == "robots" else position)
            for position, (name, member) in enumerate(composed.items(), start=-1)
            for i, explorer in enumerate(member.explorers)
            if explorer.learns
        }

    @property
    def learns(self) -> bool:
        """True where some explorer has to be trained and published."""
        return bool(self._learned)

    def learn(self, block: Block) -> dict[str, float]:
        """Train the learned ones, once, on the actions really taken in a block.

        Returns:
            Their numbers, as ``policy/explorers/<whose>/<position>/<number>``.
        """
        moves = block.transitions
        rows = block.states.rows[moves.state.long()]
        metrics: dict[str, float] = {}
        for name, (explorer, human) in self._learned.items():
            choice = moves.action if human is None else block.human_choice[:, human]
            path = f"policy/explorers/{name.replace('.', '/')}"
            numbers = explorer.learn(rows, choice)
            metrics |= {f"{path}/{key}": value for key, value in numbers.items()}
        return metrics

    def rates(self, training_step: int, schedule: WarmUpSchedule) -> dict[str, float]:
        """Probabilities of acting at random, as ``policy/explorers/<whose>/<position>/rate``."""
        rates = {
            name: explorer.rate(training_step, schedule.stage_start, schedule.total_steps)
            for name, explorer in self._named.items()
        }
        return {
            f"policy/explorers/{name.replace('.', '/')}/rate": rate
            for name, rate in rates.items()
            if rate is not None
        }

    def weights(self) -> dict[str, Tensor]:
        """Weights that actors need, under names that start with ``explorers.``."""
        return {
            f"{_PREFIX}{name}.{key}": tensor
            for name, (explorer, _) in self._learned.items()
            for key, tensor in explorer.weights().items()
        }

    def load_weights(self, weights: Weights) -> None:
        """Use what ``weights`` of another set returned; other names are not looked at."""
        for name, (explorer, _) in self._learned.items():
            prefix = f"{_PREFIX}{name}."
            subset = {
                key.removeprefix(prefix): tensor
                for key, tensor in weights.items()
                if key.startswith(prefix)
            }
            if subset:
                explorer.load_weights(subset)

    def state_dict(self) -> StateDict:
        """The state of every explorer, by name."""
        return {name: explorer.state_dict() for name, explorer in self._named.items()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for name, explorer in self._named.items():
            explorer.load_state_dict(state_dict[name])
