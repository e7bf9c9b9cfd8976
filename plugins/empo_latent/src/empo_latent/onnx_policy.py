"""The policy of a latent agent as an ONNX file: from an observation of a task to the action."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from empo_latent.networks.model import LatentModel
from empo_latent.types import MultiTaskSpec
from empo_learning.onnx_file import write_onnx

ROW = "row"


def export_policy(model: LatentModel, spec: MultiTaskSpec, task: int, path: str | Path) -> None:
    """Write encoder and policy in one task; the planner, which draws plans, is no function.

    The input is ``observation`` (a flat row of the task). Outputs are ``action``, as the
    environment takes it, and ``mean`` and ``log_std`` of the normal numbers of which ``tanh`` makes
    actions in [-1, 1].

    Args:
        model: The model, on the CPU.
        spec: What it was made for.
        task: Number of the task in ``spec.tasks``.
        path: The file.

    Raises:
        ConfigError: if the package ``onnx`` is missing.
        StorageError: if the file cannot be written.
    """
    dtype = torch.uint8 if spec.pictures else torch.float32
    inputs = {"observation": torch.zeros(2, spec.sizes[task], dtype=dtype)}
    write_onnx(_Graph(model, spec, task), inputs, ["action", "mean", "log_std"], path, row=ROW)


class _Graph(nn.Module):
    """The policy in one task as a function of observations."""

    def __init__(self, model: LatentModel, spec: MultiTaskSpec, task: int) -> None:
        super().__init__()
        self._model, self._padding = model, spec.words - spec.sizes[task]
        self._task = torch.tensor(task) if len(spec.tasks) > 1 else None
        self._numbers = sum(spec.active[task])
        low, high = torch.tensor(spec.bounds[task], dtype=torch.float64).unbind(1)
        self._low, self._high = low, high

    def forward(
        self, observation: Shaped[Tensor, "row word"]
    ) -> tuple[
        Float[Tensor, "row number"], Float[Tensor, "row number"], Float[Tensor, "row number"]
    ]:
        """Action, mean and logarithm of the standard deviation."""
        observation = F.pad(observation, (0, self._padding))
        policy = self._model.policy(
            self._model.encode(observation, task=self._task), task=self._task
        )
        scaled = policy.bounded(policy.mode)[:, : self._numbers].double()
        low, high = self._low, self._high
        action = ((low + high) / 2 + (high - low) / 2 * scaled).maximum(low).minimum(high)
        numbers = slice(0, self._numbers)
        return action.float(), policy.loc[:, numbers], policy.log_std[:, numbers]
