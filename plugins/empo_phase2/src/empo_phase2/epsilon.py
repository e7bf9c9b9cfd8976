"""Acting at random now and then, ever more rarely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols import Explorer
from empo_core.types import Scene, WorldSpec
from empo_phase2.params import EpsilonGreedyParams
from empo_phase2.warmup import linear


class EpsilonGreedy(Explorer):
    """Mixes the policy with the uniform one: (1 - epsilon) pi + epsilon / available."""

    def __init__(self, params: EpsilonGreedyParams, spec: WorldSpec, agents: Sequence[int]) -> None:
        self._params = params

    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """The mixture; see ``empo_core.protocols.Explorer``."""
        epsilon = self.rate(scene.training_step, scene.milestones, scene.total_steps)
        even = scene.available.to(policy.dtype)
        return (1 - epsilon) * policy + epsilon * even / even.sum(1, keepdim=True)

    def rate(self, training_step: int, milestones: Mapping[str, int], total_steps: int) -> float:
        """Epsilon; see ``empo_core.protocols.Explorer``.

        Raises:
            ConfigError: if there is no stage of the name from which it should fall.
        """
        params, begin = self._params, 0
        if params.decay_from != "start":
            if params.decay_from not in milestones:
                raise ConfigError(
                    f"epsilon-greedy: decay_from names the stage {params.decay_from!r}; there "
                    f"are {', '.join(milestones) or 'none'}"
                )
            begin = milestones[params.decay_from]
        elapsed = training_step - begin
        if elapsed < 0:
            return params.start
        steps = round(params.decay_fraction * total_steps)
        return linear(elapsed, params.start, params.end, steps)
