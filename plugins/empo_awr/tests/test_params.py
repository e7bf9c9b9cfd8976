"""Which parameters are accepted, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from empo_awr.params import AwrParams, FixedTemperature
from empo_core.config import PolicyLossRef


def test_a_name_is_enough() -> None:
    params = PolicyLossRef.model_validate("awr").params
    assert isinstance(params, AwrParams)
    assert params.temperature == FixedTemperature(value=0.5)
    assert params.entropy.coef == 1e-3


def test_what_is_left_out_of_the_entropy_is_the_default_of_this_loss() -> None:
    params = AwrParams.model_validate({"entropy": {"jacobian": 0.0}})
    assert params.entropy.coef == 1e-3


@pytest.mark.parametrize("params", [{}, {"temperature": {"rule": "kl"}}, {"trust_region": {}}])
def test_a_config_that_says_every_default_is_accepted(params: dict[str, Any]) -> None:
    parsed = AwrParams.model_validate(params)
    assert AwrParams.model_validate(parsed.model_dump()) == parsed


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"reduction": "median"}, "'mean', 'min' or 'max'"),
        ({"scale_rate": 0.1}, "scale_rate.*'running_scale'"),
        (
            {"normaliser": "running_scale", "temperature": {"rule": "ess"}},
            "'running_scale'",
        ),
        (
            {"normaliser": "running_scale", "temperature": {"rule": "kl"}},
            "'running_scale'",
        ),
        ({"temperature": {"rule": "ess", "value": 0.1}}, "Extra inputs"),
        ({"temperature": {"rule": "auto"}}, "'fixed', 'ess', 'kl'"),
        ({"temperature": {"value": 0.1}}, "discriminator 'rule'"),
        ({"temperature": {"rule": "fixed", "value": 0.0}}, "greater_than,"),
        ({"temperature": {"rule": "ess", "share": 1.0}}, "less_than,"),
        ({"max_weight": 1.0}, "greater_than,"),
        ({"candidates": 1}, "greater_than_equal"),
        ({"entropy": {"end": 0.1}}, "nothing moves"),
        ({"trust_region": {"mean": 0.0}}, "greater_than,"),
        ({"temprature": {}}, "Extra inputs"),
    ],
)
def test_what_makes_no_sense_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AwrParams.model_validate(params)
