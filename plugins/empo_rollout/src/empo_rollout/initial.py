"""The weights of another run as the first ones of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from pydantic import JsonValue

from empo_core.errors import ConfigError, StorageError
from empo_core.protocols.environments import EnvSpec
from empo_environments.normalisation import Moments, Normaliser
from empo_rollout.params import RolloutParams
from empo_rollout.policy import Networks
from empo_rollout.policyfile import SavedPolicy, load_policy

log = logging.getLogger(__name__)

WHERE = "algorithm.params.initial"
INITIAL_ONLY = {"log_std"}
"""Params of a policy that say what weights are at first, and not what they are."""


def initial_policy(params: RolloutParams, env_spec: EnvSpec) -> SavedPolicy:
    """The policy that ``params.initial`` names.

    Raises:
        ConfigError: if the policy cannot be loaded, or its networks, observations, actions or
            normalisation are others than those of the run.
    """
    assert params.initial is not None
    try:
        saved = load_policy(params.initial, env_spec)
    except StorageError as error:
        raise ConfigError(f"{WHERE}: {error}") from error
    there, here = (
        dict(_values(model.model_dump(mode="json", exclude=INITIAL_ONLY), "policy"))
        for model in (saved.params, params.policy)
    )
    for key in dict.fromkeys([*here, *there]):
        if here.get(key) != there.get(key):
            raise ConfigError(
                f"algorithm.params.{key}: {here.get(key)!r} does not fit the weights of {WHERE}, "
                f"{params.initial}, which were learned with {there.get(key)!r}; make them equal"
            )
    normalises = params.normalise is not None and params.normalise.observations
    if normalises != (saved.policy.normalisation is not None):
        other = "were normalised there" if not normalises else "were not normalised there"
        raise ConfigError(
            f"{WHERE}: {params.initial}: observations {other}; set normalise so that it is the "
            "same here"
        )
    return saved


def _values(data: JsonValue, key: str) -> Iterator[tuple[str, JsonValue]]:
    """Values of mappings in mappings by dotted key."""
    if not isinstance(data, dict):
        yield key, data
        return
    for name, value in data.items():
        yield from _values(value, f"{key}.{name}")


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
