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

# ruff: noqa: I001  (``A as A`` exports a name; ruff would sort each into an import of its own)

from __future__ import annotations

from empo_core.protocols.learning import (
    Actor as Actor,
    ActorFactory as ActorFactory,
    Collector as Collector,
    Explorer as Explorer,
    Weights as Weights,
)
from empo_core.protocols.environments import (
    Environment as Environment,
    VectorEnv as VectorEnv,
)
from empo_core.protocols.executors import (
    Executor as Executor,
    Needs as Needs,
    Report as Report,
)
from empo_core.protocols.learning import (
    AdaptivePolicyLoss as AdaptivePolicyLoss,
    Aggregator as Aggregator,
    Critic as Critic,
    Policy as Policy,
    PolicyLoss as PolicyLoss,
    Regression as Regression,
    ValueNetwork as ValueNetwork,
    WeighsCandidates as WeighsCandidates,
)
from empo_core.protocols.runs import (
    Algorithm as Algorithm,
    CheckpointChoice as CheckpointChoice,
    EpisodePlayer as EpisodePlayer,
    IntrinsicReward as IntrinsicReward,
    PlayedEpisodes as PlayedEpisodes,
    Result as Result,
    RunContext as RunContext,
)
from empo_core.protocols.trackers import RunStatus as RunStatus, Tracker as Tracker
from empo_core.protocols.worlds import (
    HumanPrior as HumanPrior,
    RobotPolicy as RobotPolicy,
    WorldModel as WorldModel,
)
