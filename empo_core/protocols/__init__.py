"""The protocols: one for each kind of component, and their data.

A component's factory (its ``target``) is called once, with its validated params first:

=============  ==========================================
kind           factory call
=============  ==========================================
world_model    ``factory(params)``
human_prior    ``factory(params, world)``
value_network  ``factory(params, spec, quantity)``
policy_loss    ``factory(params)``
aggregator     ``factory(params)``
tracker        ``factory(params)``
collector      ``factory(params)``
explorer       ``factory(params, spec, agents)``
environment    ``factory(params, context)``
executor       ``factory(params)``
algorithm      ``factory(params)``
=============  ==========================================
"""

from __future__ import annotations

from empo_core.protocols.collection import (
    Actor,
    ActorFactory,
    Collector,
    Explorer,
    LearnedExplorer,
    Weights,
)
from empo_core.protocols.context import RunContext
from empo_core.protocols.environments import Environment, VectorEnv
from empo_core.protocols.episodes import EpisodeMetric
from empo_core.protocols.executors import (
    Account,
    Executor,
    Needs,
    Payload,
    Reply,
    Send,
    Worker,
    WorkerFactory,
    WorkerState,
)
from empo_core.protocols.networks_and_losses import (
    AdaptivePolicyLoss,
    Aggregator,
    Critic,
    Policy,
    PolicyLoss,
    Regression,
    SharesEncoders,
    ValueNetwork,
    WeighsCandidates,
)
from empo_core.protocols.parallel_maps import ParallelMap
from empo_core.protocols.runs import (
    Algorithm,
    CheckpointChoice,
    Empowering,
    EpisodePlayer,
    IntrinsicReward,
    Playable,
    PlayedEpisodes,
    Result,
    Solution,
)
from empo_core.protocols.trackers import RunStatus, Tracker
from empo_core.protocols.world import (
    Compactable,
    Drawable,
    HumanPrior,
    Located,
    RobotPolicy,
    WorldModel,
)

__all__ = [
    "Account",
    "Actor",
    "ActorFactory",
    "AdaptivePolicyLoss",
    "Aggregator",
    "Algorithm",
    "CheckpointChoice",
    "Collector",
    "Compactable",
    "Critic",
    "Drawable",
    "Empowering",
    "Environment",
    "EpisodeMetric",
    "EpisodePlayer",
    "Executor",
    "Explorer",
    "HumanPrior",
    "IntrinsicReward",
    "LearnedExplorer",
    "Located",
    "Needs",
    "ParallelMap",
    "Payload",
    "Playable",
    "PlayedEpisodes",
    "Policy",
    "PolicyLoss",
    "Regression",
    "Reply",
    "Result",
    "RobotPolicy",
    "RunContext",
    "RunStatus",
    "Send",
    "SharesEncoders",
    "Solution",
    "Tracker",
    "ValueNetwork",
    "VectorEnv",
    "WeighsCandidates",
    "Weights",
    "Worker",
    "WorkerFactory",
    "WorkerState",
    "WorldModel",
]
