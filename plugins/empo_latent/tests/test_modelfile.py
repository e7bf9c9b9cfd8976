"""Models on disk: what comes back is what was written, or a clear refusal."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.errors import NonFiniteError, StorageError
from empo_core.plugins.registry import Registry
from empo_latent.modelfile import LoadedModel, load_model, save_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec

ONE = MultiTaskSpec(
    words=3,
    pictures=False,
    shape=(3,),
    actions=1,
    active=((True,),),
    tasks=("Pendulum-v1",),
    action_repeats=(1,),
    episode_lengths=(200,),
)
TWO = MultiTaskSpec(
    words=3,
    pictures=False,
    shape=(3,),
    actions=2,
    active=((True, False), (True, True)),
    tasks=("a", "b"),
    action_repeats=(1, 2),
    episode_lengths=(200, 500),
)
PICTURES = MultiTaskSpec(
    words=9 * 64 * 64,
    pictures=True,
    shape=(9, 64, 64),
    actions=1,
    active=((True,),),
    tasks=("seen",),
    action_repeats=(2,),
    episode_lengths=(500,),
)
RICH: dict[str, Any] = {
    "optimistic_loss": "any",
    "auxiliary": {"discounts": [0.9, 0.95]},
    "reward": {"episodic": True, "heads": 2},
    "encoder": {"average_rate": 0.05},
    "value": {"critic": "q", "heads": 3},
}
Saved = Callable[..., LatentModel]
Load = Callable[[Path], LoadedModel]
Edit = Callable[..., None]


def model_of(params: LatentParams, spec: MultiTaskSpec, seed: int = 0) -> LatentModel:
    return LatentModel(
        params,
        spec,
        generator=torch.Generator().manual_seed(seed),
        optimistic=params.optimistic_loss is not None,
    )


@pytest.fixture
def saved(small: Any, tmp_path: Path) -> Saved:
    """A function that writes a model to ``model``, and returns it."""

    def save(spec: MultiTaskSpec = ONE, seed: int = 0, **groups: Any) -> LatentModel:
        params = small(**groups)
        model = model_of(params, spec, seed)
        save_model(tmp_path / "model", model, params, spec)
        return model

    return save


@pytest.fixture
def load(small: Any) -> Load:
    return lambda path: load_model(path, registry=small.registry)


@pytest.mark.parametrize(
    ("spec", "groups"),
    [(ONE, {}), (ONE, RICH), (TWO, {"value": {"heads": 1}}), (PICTURES, {})],
)
def test_a_model_comes_back_as_it_was(
    spec: MultiTaskSpec,
    groups: dict[str, Any],
    saved: Saved,
    load: Load,
    small: Any,
    tmp_path: Path,
) -> None:
    model = saved(spec, seed=3, **groups)
    found, params, known = load(tmp_path / "model")
    assert params == small(**groups)
    assert known == spec
    torch.testing.assert_close(found.state_dict(), model.state_dict(), rtol=0, atol=0)
    observation = torch.zeros(1, spec.words, dtype=torch.uint8 if spec.pictures else None)
    task = torch.tensor([1]) if len(spec.tasks) > 1 else None
    actions = [
        each.policy(each.encode(observation, task=task), task=task) for each in (model, found)
    ]
    torch.testing.assert_close(actions[1].loc, actions[0].loc, rtol=0, atol=0)
    torch.testing.assert_close(actions[1].scale, actions[0].scale, rtol=0, atol=0)


def test_a_loaded_model_can_go_on_learning(saved: Saved, load: Load, tmp_path: Path) -> None:
    saved(**RICH)
    model = load(tmp_path / "model").model
    z = model.encode(torch.ones(2, 3))
    (model.policy(z).loc.sum() + model.next_latent(z, torch.ones(2, 1)).square().sum()).backward()
    for group in ("encoder", "dynamics", "policy"):
        assert any(
            bool(weight.grad.any()) for weight in model.groups()[group] if weight.grad is not None
        )
    assert not any(weight.requires_grad for weight in model.averages["value"].parameters())


def test_another_model_takes_its_place(saved: Saved, load: Load, tmp_path: Path) -> None:
    saved()
    newer = saved(seed=1)
    found = load(tmp_path / "model").model
    torch.testing.assert_close(found.state_dict(), newer.state_dict(), rtol=0, atol=0)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"latents": {"size": 16, "group": 4, "width": 8}}}, "size mismatch"),
        ({"params": {"latents": {"size": 2**50, "group": 4}}}, "not make"),
        ({"params": {"optimistic_loss": "any"}}, "Missing key"),
        ({"params": {"value": {"heads": 0}}}, r"value\.heads"),
        ({"params": {"policy_loss": "gone"}}, "No policy_loss named 'gone'"),
        ({"params": {"layers": 3}}, "layers"),
        ({"spec": {"words": 4}}, "size mismatch"),
        ({"spec": {"tasks": ["a", "b"]}}, "not make"),
        ({"spec": {"goals": 1}}, "goals"),
    ],
)
def test_a_header_that_does_not_fit_its_weights_is_refused(
    change: dict[str, Any],
    message: str,
    saved: Saved,
    load: Load,
    tmp_path: Path,
    edit_model: Edit,
) -> None:
    saved()
    edit_model(tmp_path / "model", change)
    with pytest.raises(StorageError, match=message):
        load(tmp_path / "model")


def test_weights_of_another_precision_are_refused(
    saved: Saved, load: Load, tmp_path: Path, edit_model: Edit
) -> None:
    saved()
    edit_model(tmp_path / "model", {}, dtype="half")
    with pytest.raises(StorageError, match=r"float16, not torch\.float32"):
        load(tmp_path / "model")


def test_a_model_whose_loss_is_not_installed_is_refused(saved: Saved, tmp_path: Path) -> None:
    saved()
    with pytest.raises(StorageError, match="No policy_loss named 'any'"):
        load_model(tmp_path / "model", registry=Registry([]))


def test_weights_that_are_not_finite_are_not_saved(small: Any, tmp_path: Path) -> None:
    params = small()
    model = model_of(params, ONE)
    with torch.no_grad():
        model.groups()["policy"][0].view(-1)[0] = math.nan
    with pytest.raises(NonFiniteError, match="policy"):
        save_model(tmp_path / "model", model, params, ONE)
    assert not (tmp_path / "model").exists()
