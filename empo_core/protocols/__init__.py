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

from empo_core.protocols.collection import (
    Actor as Actor,
    ActorFactory as ActorFactory,
    Collector as Collector,
    Explorer as Explorer,
    LearnedExplorer as LearnedExplorer,
    Weights as Weights,
)
from empo_core.protocols.context import RunContext as RunContext
from empo_core.protocols.declarations import Factored as Factored, Symmetric as Symmetric
from empo_core.protocols.environments import (
    Environment as Environment,
    SteppedTogether as SteppedTogether,
    VectorEnv as VectorEnv,
)
from empo_core.protocols.episodes import EpisodeMetric as EpisodeMetric
from empo_core.protocols.executors import (
    Executor as Executor,
    Needs as Needs,
    Report as Report,
)
from empo_core.protocols.networks_and_losses import (
    AdaptivePolicyLoss as AdaptivePolicyLoss,
    Aggregator as Aggregator,
    Critic as Critic,
    Policy as Policy,
    PolicyLoss as PolicyLoss,
    Regression as Regression,
    SharesEncoders as SharesEncoders,
    ValueNetwork as ValueNetwork,
    WeighsCandidates as WeighsCandidates,
)
from empo_core.protocols.players import (
    CheckpointChoice as CheckpointChoice,
    EpisodePlayer as EpisodePlayer,
    FilmingPlayer as FilmingPlayer,
    Playable as Playable,
    PlayedEpisodes as PlayedEpisodes,
)
from empo_core.protocols.runs import (
    Algorithm as Algorithm,
    ClosedLoop as ClosedLoop,
    Empowering as Empowering,
    IntrinsicReward as IntrinsicReward,
    Reopenable as Reopenable,
    Result as Result,
    Solution as Solution,
)
from empo_core.protocols.tables import Tabular as Tabular
from empo_core.protocols.trackers import RunStatus as RunStatus, Tracker as Tracker
from empo_core.protocols.world import (
    Bounded as Bounded,
    Compactable as Compactable,
    Composed as Composed,
    Drawable as Drawable,
    Expandable as Expandable,
    FirstPerson as FirstPerson,
    Headed as Headed,
    HumanPrior as HumanPrior,
    Located as Located,
    RobotPolicy as RobotPolicy,
    VectorDrawable as VectorDrawable,
    WorldModel as WorldModel,
)
