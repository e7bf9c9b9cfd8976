"""Inputs of networks: embeddings of tasks, and masks of the actions that tasks use."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from empo_latent.types import MultiTaskSpec

Task: TypeAlias = Int[Tensor, "..."]
"""Ids of tasks; the shape broadcasts against the axes of what they are about."""
BOUND = 0.02
"""Greatest absolute number of embeddings at first."""


class TaskEmbedding(nn.Module):
    """Puts together what networks read: latents, actions, and what stands for the task.

    Of several tasks, each is embedded in a vector no longer than 1 (Hansen et al. 2024, sec. 3).
    Numbers of an action that a task does not use are read as 0.
    """

    active: Tensor

    def __init__(self, spec: MultiTaskSpec, size: int, *, generator: torch.Generator) -> None:
        """Embed the tasks of ``spec`` in ``size`` numbers; a single one in none."""
        super().__init__()
        self._tasks = spec.tasks
        self.size = size if len(spec.tasks) > 1 else 0
        self.table: nn.Parameter | None = None
        if self.size:
            table = torch.empty(len(spec.tasks), size)
            self.table = nn.Parameter(table.uniform_(-BOUND, BOUND, generator=generator))
        self._is_masked = not all(map(all, spec.active))
        self.register_buffer("active", torch.tensor(spec.active), persistent=False)

    def embedded(self, task: Task | None) -> Float[Tensor, "*task task_feature"] | None:
        """Embeddings of tasks, of norm at most 1; None where there is one task."""
        if self.table is None:
            return None
        chosen = F.embedding(self._named(task), self.table)
        norm: Tensor = torch.linalg.vector_norm(chosen, dim=-1, keepdim=True)
        return chosen / norm.clamp(min=1)

    def used(self, task: Task | None) -> Bool[Tensor, "*task action"] | None:
        """True for numbers of an action that tasks use; None where all tasks use all."""
        if not self._is_masked:
            return None
        return self.active[0] if len(self._tasks) == 1 else self.active[self._named(task)]

    def concatenated(
        self,
        z: Float[Tensor, "*batch latent"],
        task: Task | None,
        action: Float[Tensor, "*#batch action"] | None = None,
        *,
        constant_task: bool = False,
    ) -> Float[Tensor, "*batch input"]:
        """Latent, action and task embedding side by side; ``constant_task`` detaches the last."""
        parts = [z]
        if action is not None:
            used = self.used(task)
            parts.append(action if used is None else action.masked_fill(~used, 0.0))
        embedding = self.embedded(task)
        if embedding is not None:
            parts.append(embedding.detach() if constant_task else embedding)
        if len(parts) == 1:
            return z
        return torch.cat([part.expand(*z.shape[:-1], part.shape[-1]) for part in parts], -1)

    def _named(self, task: Tensor | None) -> Tensor:
        if task is None:
            tasks = ", ".join(self._tasks)
            raise ValueError(f"there are several tasks ({tasks}): say which one it is")
        return task
