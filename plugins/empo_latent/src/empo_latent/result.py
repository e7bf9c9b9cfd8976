"""Result of algorithm ``latent``: the model, and films of the last evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from empo_core.best_effort import best_effort
from empo_latent.evaluation import Evaluation, ReturnStatistics
from empo_latent.modelfile import save_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.evaluation.videos import Video, save_videos
from empo_learning.result import PICTURE, EpisodicResult, EvaluationRow

VIDEOS = "videos"


@dataclass(frozen=True, kw_only=True)
class LatentResult(EpisodicResult):
    """The learned world model, values and policies, and the record of the run.

    Attributes:
        model: The networks.
        params: Everything about the run.
        spec: What they see and do.
        updates: Updates so far.
        videos: Films of episodes of the last evaluation.
    """

    model: LatentModel
    params: LatentParams
    spec: MultiTaskSpec
    updates: int
    videos: Sequence[Video] = ()

    def draw(self, directory: Path) -> None:
        """Write the learning curves as a picture, and the videos."""
        with best_effort(f"drawing {PICTURE}"):
            super().draw(directory)
        with best_effort("writing the videos"):
            save_videos(self.videos, directory / VIDEOS)

    def _save_model(self, path: Path) -> None:
        save_model(path, self.model, self.params, self.spec)

    def _details(self) -> dict[str, Any]:
        return {"updates": self.updates, "parameters": self._num_parameters}

    def _work(self) -> str:
        return f"{self.updates:,} updates of {self._num_parameters:,} parameters"

    def _cells(self, returns: ReturnStatistics) -> dict[str, str]:
        return {} if returns.success is None else {"success": f"{returns.success:.0%}"}

    @property
    def _num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.parameters() if weight.requires_grad)


def evaluation_rows(
    tasks: Sequence[str], evaluations: Sequence[tuple[int, Mapping[str, Evaluation]]]
) -> list[EvaluationRow]:
    """Returns by task and actor in each evaluation, given as steps and outcomes by actor."""
    return [
        EvaluationRow(steps, {"task": task, "actor": actor}, evaluation.statistics(task))
        for steps, by_actor in evaluations
        for task in tasks
        for actor, evaluation in by_actor.items()
    ]


def newest_videos(evaluations: Sequence[tuple[int, Mapping[str, Evaluation]]]) -> list[Video]:
    """Films of the last evaluation, given as steps and outcomes by actor."""
    newest = evaluations[-1][1].values() if evaluations else ()
    return [video for evaluation in newest for video in evaluation.videos]
