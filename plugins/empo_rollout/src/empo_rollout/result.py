"""Result of algorithm ``rollout``: the policy, and why episodes ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from empo_core.protocols import WorldModel
from empo_core.protocols.environments import EnvSpec
from empo_core.world_content import identity
from empo_learning.evaluation.returns import GroupReturns
from empo_learning.result import EpisodicResult
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks
from empo_rollout.policyfile import save_policy


@dataclass(frozen=True, kw_only=True)
class RolloutResult(EpisodicResult):
    """The learned policy, and the record of the run.

    Attributes:
        policy: The trained networks.
        params: What they were built from.
        env_spec: What they see and do.
        iterations: Rollouts learned from.
        reasons: How many episodes of the training ended for each reason.
        humans_of: The world in which humans learned, if they did: they can be a human prior.
    """

    policy: Networks
    params: PolicyParams
    env_spec: EnvSpec
    iterations: int
    reasons: Mapping[str, int]
    humans_of: WorldModel | None = None

    def _save_model(self, path: Path) -> None:
        world = None if self.humans_of is None else identity(self.humans_of)
        save_policy(path, self.policy, self.params, self.env_spec, world=world)

    def _details(self) -> dict[str, Any]:
        return {"iterations": self.iterations, "episodes_ended": dict(self.reasons)}

    def _work(self) -> str:
        return f"{self.iterations:,} iterations"

    def _cells(self, returns: GroupReturns) -> dict[str, str]:
        ends = [f"{name} {share:.0%}" for name, share in returns.ends.items()]
        cells = {"ended": ", ".join(ends)}
        return cells if returns.success is None else cells | {"success": f"{returns.success:.0%}"}
