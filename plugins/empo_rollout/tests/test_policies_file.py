"""Policies on disk: what comes back is what was written, or a clear refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_shapes import policy_params

from empo_core.errors import NonFiniteError, StorageError
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, ObservationNormalisation, build_policy
from empo_rollout.policyfile import load_policy, save_policy

PICTURES = EnvSpec(
    ObservationSpec(2 * 3 * 4 + 1, "uint8", (2, 3, 4)),
    ActionSpec(low=(-1.0, -math.inf), high=(math.inf, 2.0)),
    ("one", "two"),
    num_envs=3,
    num_blocks=3,
)
BOUNDS = ((2, -1.0, 1.0), (3, -math.inf, 0.5))
ROWS = EnvSpec(
    ObservationSpec(5, bounds=BOUNDS), ActionSpec(choices=(3, 2)), ("one",), num_envs=4, masks=True
)


def small(**params: Any) -> PolicyParams:
    shape = {"hidden": [4], "memory_size": 3, **params}
    return PolicyParams.model_validate(policy_params(**shape))


def policy_of(place: EnvSpec, seed: int = 0, **params: Any) -> tuple[Networks, PolicyParams]:
    kind = small(**params)
    return build_policy(kind, place, generator=torch.Generator().manual_seed(seed)), kind


def saved(path: Path, place: EnvSpec = ROWS, **params: Any) -> Networks:
    policy, kind = policy_of(place, **params)
    save_policy(path, policy, kind, place)
    return policy


def test_bounds_of_observations_are_saved_and_those_elsewhere_may_differ(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    elsewhere = replace(ROWS, observations=ObservationSpec(5, bounds=((5, 0.0, 9.0),)))
    loaded = load_policy(tmp_path / "policy", elsewhere)
    assert loaded.env_spec.observations.bounds == loaded.policy.observations.bounds == BOUNDS


@pytest.mark.parametrize("lengths", [(4,), (5, 1), (2**60,), (7, -2), (5, 0)])
def test_bounds_that_are_not_those_of_all_words_are_refused(
    lengths: tuple[int, ...], tmp_path: Path, edit_model: Callable[..., None]
) -> None:
    saved(tmp_path / "policy")
    bounds = [[length, 0.0, 1.0] for length in lengths]
    edit_model(tmp_path / "policy", {"spec": {"observations": {"words": 5, "bounds": bounds}}})
    with pytest.raises(StorageError, match=r"spec\.observations.*bounds"):
        load_policy(tmp_path / "policy")


@pytest.mark.parametrize(
    ("place", "params"),
    [
        (ROWS, {}),
        (ROWS, {"memory": "lstm", "critic": "shared"}),
        (PICTURES, {"network": "conv", "agents": "separate", "log_std": -1.0}),
        (PICTURES, {"memory": "gru", "critic": "shared", "agents": "separate"}),
    ],
)
def test_a_policy_comes_back_as_it_was(
    place: EnvSpec, params: dict[str, Any], tmp_path: Path
) -> None:
    policy = saved(tmp_path / "new folder" / "policy", place, **params)

    found = load_policy(tmp_path / "new folder" / "policy", place)

    torch.testing.assert_close(found.policy.state_dict(), policy.state_dict(), rtol=0, atol=0)
    assert found.params == small(**params)
    assert found.env_spec.observations == place.observations
    assert found.env_spec.actions == place.actions
    assert (found.env_spec.agents, found.env_spec.num_envs) == (place.agents, 1)
    assert found.env_spec.masks == place.masks
    observation = torch.ones(2, place.observations.words).to(
        getattr(torch, place.observations.dtype)
    )
    given = (observation, policy.initial_memory(2), torch.ones(2, dtype=torch.bool))
    for own, other in zip(
        policy.step(*given, torch.tensor([0, 0]))[1:],
        found.policy.step(*given, torch.tensor([0, 0]))[1:],
        strict=True,
    ):
        torch.testing.assert_close(other, own, rtol=0, atol=0)


def test_a_loaded_policy_can_go_on_learning(tmp_path: Path) -> None:
    saved(tmp_path / "policy", memory="gru", critic="shared")
    policy = load_policy(tmp_path / "policy").policy
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    optimiser = torch.optim.SGD(policy.parameters(), lr=1.0)

    segments = (torch.ones(3, 2, 5), torch.ones(2, 3), torch.zeros(3, 2, dtype=torch.bool))
    hidden, value, _ = policy.unroll(*segments, torch.zeros(2, dtype=torch.long))
    (hidden.sum() + value.sum()).backward()
    optimiser.step()

    moved = {name for name, weight in policy.state_dict().items() if (weight != before[name]).any()}
    assert moved == {name for name in before if "head" not in name}


def test_another_policy_takes_its_place(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    newer = saved(tmp_path / "policy", seed=1)

    found = load_policy(tmp_path / "policy").policy

    torch.testing.assert_close(found.state_dict(), newer.state_dict(), rtol=0, atol=0)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


@pytest.mark.parametrize(
    ("params", "place", "message"),
    [
        (
            {},
            EnvSpec(ObservationSpec(6), ROWS.actions, ("one",), 4),
            "observations have words 5, and here they have words 6;",
        ),
        (
            {},
            EnvSpec(ROWS.observations, ActionSpec((2, 3)), ("one",), 4),
            r"actions have choices \(3, 2\), .* choices \(2, 3\);",
        ),
        (
            {"agents": "separate"},
            EnvSpec(ROWS.observations, ROWS.actions, ("other",), 4),
            "agents have the names one, .* other;",
        ),
    ],
)
def test_it_is_not_used_where_it_does_not_fit(
    params: dict[str, Any], place: EnvSpec, message: str, tmp_path: Path
) -> None:
    saved(tmp_path / "policy", **params)
    with pytest.raises(StorageError, match=message):
        load_policy(tmp_path / "policy", place)


def test_one_policy_for_all_agents_acts_for_any_agents(tmp_path: Path) -> None:
    saved(tmp_path / "policy")
    others = EnvSpec(ROWS.observations, ROWS.actions, ("x", "y"), 9)

    assert load_policy(tmp_path / "policy", others).params.agents == "shared"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": policy_params(hidden=[2**40])}, "hidden"),
        ({"params": policy_params(hidden=[7])}, "size mismatch"),
        ({"params": policy_params(memory="gru", critic="shared")}, "Missing key"),
        ({"params": policy_params(network="conv")}, "picture"),
        ({"params": {"layers": 3}}, "layers"),
    ],
)
def test_a_header_that_does_not_fit_its_weights_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path, edit_model: Callable[..., None]
) -> None:
    saved(tmp_path / "policy")
    edit_model(tmp_path / "policy", change)
    with pytest.raises(StorageError, match=message):
        load_policy(tmp_path / "policy")


def test_weights_of_another_precision_are_refused(
    tmp_path: Path, edit_model: Callable[..., None]
) -> None:
    saved(tmp_path / "policy")
    edit_model(tmp_path / "policy", {}, dtype="half")
    with pytest.raises(StorageError, match=r"float16, not torch\.float32"):
        load_policy(tmp_path / "policy")


def test_statistics_of_environments_come_back_with_the_policy(tmp_path: Path) -> None:
    policy, params = policy_of(ROWS)
    mean, variance = torch.arange(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64) / 3
    policy.normalisation = ObservationNormalisation(mean, variance, 4.0, torch.tensor(9.0))
    save_policy(tmp_path / "policy", policy, params, ROWS)
    found = load_policy(tmp_path / "policy").policy.normalisation
    assert found is not None
    assert found.clip == 4.0
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=0)
    torch.testing.assert_close(found.variance, variance, rtol=0, atol=0)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    policy, params = policy_of(ROWS)
    with torch.no_grad():
        policy.members[0].head.weight[0, 0] = math.nan

    with pytest.raises(NonFiniteError, match=r"networks\.0\.head\.weight"):
        save_policy(tmp_path / "policy", policy, params, ROWS)
    assert not (tmp_path / "policy").exists()
