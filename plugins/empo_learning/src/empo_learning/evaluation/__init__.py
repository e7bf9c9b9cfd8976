"""Playing a run's policies: returns in its environments, or attainment of human goals in its world.

In a world, all episodes take their steps at once, as long as they go on. The human in question
pursues the goal in question from the start to the end; the others pursue goals drawn by weight,
one per episode.
"""

from empo_learning.evaluation.animations import film
from empo_learning.evaluation.attainment import Attainment, Evaluation, evaluate
from empo_learning.evaluation.episodes import EpisodeSampler, EpisodeStep
from empo_learning.evaluation.returns import GroupReturns, ReturnEvaluation, evaluate_returns
from empo_learning.evaluation.runs import Evaluated, evaluate_run

__all__ = [
    "Attainment",
    "EpisodeSampler",
    "EpisodeStep",
    "Evaluated",
    "Evaluation",
    "GroupReturns",
    "ReturnEvaluation",
    "evaluate",
    "evaluate_returns",
    "evaluate_run",
    "film",
]
