"""The kinds of components: the founding five first, then the others and what belongs to them.

A component of a kind with a base class derives from that class, which has the optional members. A
component of a kind with a protocol has the methods of the protocol. Its factory (the ``target``,
most often the class itself) is called once, with its validated params first:

==============  =============  ==========  ===================================
kind            class          which is a  factory call
==============  =============  ==========  ===================================
world_model     WorldModel     base class  ``factory(params)``
value_network   ValueNetwork   base class  ``factory(params, spec, quantity)``
policy_loss     PolicyLoss     base class  ``factory(params)``
aggregator      Aggregator     protocol    ``factory(params)``
tracker         Tracker        base class  ``factory(params)``
human_prior     HumanPrior     protocol    ``factory(params, world)``
explorer        Explorer       base class  ``factory(params, spec, agents)``
collector       Collector      protocol    ``factory(params)``
environment     Environment    base class  ``factory(params, context)``
executor        Executor       protocol    ``factory(params)``
callback        Callback       base class  ``factory(params)``
schedule        Schedule       protocol    ``factory(params)``
policy_network  PolicyNetwork  base class  ``factory(params, observations)``
algorithm       Algorithm      base class  ``factory(params)``
==============  =============  ==========  ===================================

The data that the methods take and return are dataclasses of ``empo_core.types``.
"""

# ruff: noqa: I001  (the founding five first; ``A as A`` exports a name)

from __future__ import annotations

from empo_core.protocols.worlds import WorldModel as WorldModel
from empo_core.protocols.learning import (
    ValueNetwork as ValueNetwork,
    PolicyLoss as PolicyLoss,
    Aggregator as Aggregator,
)
from empo_core.protocols.trackers import Tracker as Tracker

from empo_core.protocols.worlds import (
    HumanPrior as HumanPrior,
    RobotPolicy as RobotPolicy,
)
from empo_core.protocols.learning import (
    Regression as Regression,
    Schedule as Schedule,
    PolicyNetwork as PolicyNetwork,
    Policy as Policy,
    Critic as Critic,
    Explorer as Explorer,
    Collector as Collector,
    Actor as Actor,
    ActorFactory as ActorFactory,
    Weights as Weights,
)
from empo_core.protocols.environments import (
    Environment as Environment,
    VectorEnv as VectorEnv,
)
from empo_core.protocols.callbacks import (
    Callback as Callback,
    Training as Training,
)
from empo_core.protocols.executors import (
    Executor as Executor,
    Needs as Needs,
    Report as Report,
)
from empo_core.protocols.runs import (
    Algorithm as Algorithm,
    CheckpointChoice as CheckpointChoice,
    Agent as Agent,
    EpisodePlayer as EpisodePlayer,
    IntrinsicReward as IntrinsicReward,
    PlayedEpisodes as PlayedEpisodes,
    Result as Result,
    RunContext as RunContext,
)
from empo_core.protocols.trackers import RunStatus as RunStatus
