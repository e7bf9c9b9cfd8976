"""The weights of another run as the first ones of a run."""

from __future__ import annotations

import logging

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec
from empo_environments.normalisation import Moments, Normaliser
from empo_learning.initial import WHERE, read_initial, require_equal_params
from empo_rollout.params import RolloutParams
from empo_rollout.policy import Networks
from empo_rollout.policyfile import SavedPolicy, load_policy

log = logging.getLogger(__name__)

INITIAL_ONLY = {"log_std"}
"""Params of a policy that say what weights are at first, and not what they are."""


def initial_policy(params: RolloutParams, env_spec: EnvSpec) -> SavedPolicy:
    """The policy that ``params.initial`` names.

    Raises:
        ConfigError: if the policy cannot be loaded, or its networks, observations, actions or
            normalisation are others than those of the run.
    """
    assert params.initial is not None
    saved = read_initial(lambda path: load_policy(path, env_spec), params.initial)
    here, there = (
        model.model_dump(mode="json", exclude=INITIAL_ONLY)
        for model in (params.policy, saved.params)
    )
    require_equal_params(here, there, "policy", params.initial)
    normalises = params.normalise is not None and params.normalise.observations
    if normalises != (saved.policy.normalisation is not None):
        other = "were normalised there" if not normalises else "were not normalised there"
        raise ConfigError(
            f"{WHERE}: {params.initial}: observations {other}; set normalise so that it is the "
            "same here"
        )
    return saved


def load_initial(policy: Networks, saved: SavedPolicy) -> None:
    """Give a policy the weights of another; normalising is left to the run."""
    weights = saved.policy.state_dict()
    policy.load_state_dict(
        {name: weights[name] for name in weights if not name.startswith("normalisation.")}
    )
    log.info("begins with the weights of another run")


def begin_with(normaliser: Normaliser, saved: SavedPolicy) -> None:
    """Go on with the statistics of observations that a policy learned with."""
    statistics = saved.policy.normalisation
    if statistics is None:
        return
    moments = Moments(statistics.mean.numpy(), statistics.variance.numpy(), float(statistics.count))
    normaliser.begin([moments, *normaliser.moments[1:]])
