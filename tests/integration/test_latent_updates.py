"""Effects of a whole update of the latent agent, with AWR and SVG, on weights and gradients."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from empo_core.components import build
from empo_core.config import RunConfig, merged
from empo_core.experiment import Experiment
from empo_core.plugins.discovery import discover
from empo_core.plugins.registry import Registry
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.result import LatentResult
from empo_latent.types import MultiTaskSpec, SequenceBatch
from empo_latent.update import Updater

AWR = {
    "name": "awr",
    "params": {
        "normaliser": "running_scale",
        "trust_region": {},
        "entropy": {"schedule": "linear", "end": 1e-2},
    },
}
SVG = {"name": "svg", "params": {"entropy": {"target_entropy": -1.0}}}
AGENT: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 100,
    "tasks": [
        {"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 20}},
        {"name": "gymnasium/MountainCarContinuous-v0", "params": {"max_episode_steps": 20}},
    ],
    "num_envs": 2,
    "encoder": {"width": 8, "average_rate": 0.05},
    "latents": {"size": 8, "group": 4, "width": 8, "heads": 2, "task_size": 3},
    "bins": {"number": 11},
    "reward": {"heads": 2, "episodic": True},
    "value": {"heads": 2, "dropout": 0.1},
    "auxiliary": {"discounts": [0.5]},
    "replay": {"batch_size": 6},
    "learning": {"horizon": 2},
    "imagination": {"candidates": 8},
    "planner": {"samples": 8, "iterations": 1, "elites": 4, "policy_plans": 2},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 1, "videos": 0},
}
TWO_TASKS = MultiTaskSpec(
    words=3,
    pictures=False,
    shape=(3,),
    actions=2,
    active=((True, True), (True, False)),
    tasks=("one", "two"),
    action_repeats=(1, 1),
    episode_lengths=(50, 50),
)
DISCOUNTS = torch.tensor([0.9, 0.8])


def parameters(**options: Any) -> LatentParams:
    given = {"policy_loss": AWR, "optimistic_loss": SVG, **options}
    return LatentParams.model_validate(merged(AGENT, given))


def losses_of(params: LatentParams) -> dict[str, Any]:
    assert params.optimistic_loss is not None
    refs = {"policy": params.policy_loss, "optimistic": params.optimistic_loss}
    return {name: build(ref) for name, ref in refs.items()}


def random_model(params: LatentParams, spec: MultiTaskSpec = TWO_TASKS) -> LatentModel:
    """All of its weights are random: no head is 0, and no average is like its network."""
    generator = torch.Generator().manual_seed(0)
    model = LatentModel(params, spec, generator=generator, optimistic=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
        # After some steps, not after all, episodes seem to end.
        assert "termination" in model.parts
        model.parts["termination"].biases[-1].sub_(1.0)
    return model


def experience(seed: int = 0) -> SequenceBatch:
    """Random steps of both tasks; some of the last end their episodes."""
    generator = torch.Generator().manual_seed(seed)
    terminated = torch.zeros(2, 6, 1)
    terminated[-1, :2] = 1
    return SequenceBatch(
        torch.randn(3, 6, 3, generator=generator),
        torch.rand(2, 6, 2, generator=generator) * 2 - 1,
        torch.randn(2, 6, 1, generator=generator),
        terminated,
        torch.arange(6) % 2,
    )


class Step(NamedTuple):
    """Parameter groups with gradients at one optimiser step.

    Attributes:
        given: Which groups had gradients, be they 0; ``rest`` is all that is never trained.
        taught: Which of them were not 0.
    """

    given: frozenset[str]
    taught: frozenset[str]


class Watched(Updater):
    """An updater that notes, before every step of an optimiser, what got gradients."""

    def __init__(self, model: LatentModel, params: LatentParams) -> None:
        super().__init__(model, losses_of(params), params, DISCOUNTS)
        self.steps: list[Step] = []

    def _step(
        self, optimiser: torch.optim.Optimizer, weights: list[nn.Parameter], lr_factor: float
    ) -> Tensor:
        groups = everything(self._model)
        given = {name for name, group in groups.items() if any(x.grad is not None for x in group)}
        taught = {
            name
            for name in given
            if any(x.grad is not None and bool(x.grad.any()) for x in groups[name])
        }
        self.steps.append(Step(frozenset(given), frozenset(taught)))
        return super()._step(optimiser, weights, lr_factor)


def everything(model: LatentModel) -> dict[str, list[nn.Parameter]]:
    """All parameters by group; ``rest`` is those of no group."""
    groups = model.groups()
    known = {id(each) for group in groups.values() for each in group}
    return groups | {"rest": [each for each in model.parameters() if id(each) not in known]}


def kept(model: LatentModel) -> dict[str, Tensor]:
    return {name: each.clone() for name, each in model.state_dict().items()}


def changed(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[str]:
    assert before.keys() == after.keys()
    return [name for name in before if not torch.equal(before[name], after[name])]


def updated(params: LatentParams, updates: int = 1) -> tuple[LatentModel, Watched]:
    model = random_model(params)
    updater = Watched(model, params)
    for index in range(updates):
        torch.manual_seed(index)
        updater.update(experience(index), index / 4)
    return model, updater


MIXES: dict[str, dict[str, Any]] = {
    "awr, and svg for optimism": {},
    "svg, and awr for optimism": {
        "policy_loss": SVG,
        "optimistic_loss": AWR,
        "imagination": {"start": "rollout", "critic": "online"},
    },
    "a critic of actions": {"value": {"critic": "q"}},
}
TABLE = {
    # As in section B of the specification: which networks each loss teaches.
    "consistency": {"dynamics", "encoder", "task"},
    "reward": {"reward", "dynamics", "encoder", "task"},
    "termination": {"termination", "dynamics", "encoder", "task"},
    "value": {"value", "dynamics", "encoder", "task"},
    "auxiliary": {"auxiliary", "encoder", "task"},
}


def with_only(loss: str, params: LatentParams) -> LatentParams:
    """The same, but of the model's losses only this one counts."""
    coefs = {
        "consistency": ("latents", "consistency_coef"),
        "reward": ("reward", "coef"),
        "termination": ("reward", "termination_coef"),
        "value": ("value", "coef"),
        "auxiliary": ("auxiliary", "coef"),
    }
    assert coefs.keys() == TABLE.keys()
    for name, (group, key) in coefs.items():
        changed = getattr(params, group).model_copy(update={key: float(name == loss)})
        params = params.model_copy(update={group: changed})
    return params


@pytest.mark.parametrize("mix", MIXES)
def test_each_loss_of_an_update_teaches_its_networks_and_no_others(mix: str) -> None:
    params = parameters(**MIXES[mix])
    for loss, expected in TABLE.items():
        model, updater = updated(with_only(loss, params))
        first, *policies = updater.steps
        assert first.taught == expected, loss
        # Not even zeros where a policy learns: whatever came before is gone by then.
        own = [frozenset({name}) for name in ("policy", "optimistic")]
        assert policies == [Step(given=each, taught=each) for each in own]
        assert all(weight.grad is None for weight in model.parameters())
    assert (
        set().union(*TABLE.values(), {"policy", "optimistic", "rest"}) == everything(model).keys()
    )


class Returning(Watched):
    """Gives the model its gradients back before policies learn."""

    returned: Mapping[nn.Parameter, Tensor] = {}

    def _step(
        self, optimiser: torch.optim.Optimizer, weights: list[nn.Parameter], lr_factor: float
    ) -> Tensor:
        own = {each: each.grad.clone() for each in weights if each.grad is not None}
        norm = super()._step(optimiser, weights, lr_factor)
        if len(self.steps) == 1:
            self.returned = own
            for weight, grad in own.items():
                weight.grad = grad.clone()
        return norm


@pytest.mark.parametrize("mix", MIXES)
def test_policies_learn_after_the_model_has_moved_and_add_nothing_to_its_gradients(
    mix: str,
) -> None:
    params = parameters(**MIXES[mix])
    model = random_model(params)
    before, updater = kept(model), Returning(model, params)

    updater.update(experience(), 0.0)

    assert all(not torch.equal(each, before[name]) for name, each in model.named_parameters())
    assert len(updater.returned) == sum(
        len(group) for name, group in model.groups().items() if name not in losses_of(params)
    )
    for weight, grad in updater.returned.items():
        assert weight.grad is not None
        assert torch.equal(weight.grad, grad)


@pytest.mark.parametrize("mix", MIXES)
def test_what_follows_the_end_of_an_episode_teaches_nothing(mix: str) -> None:
    params = parameters(**MIXES[mix])
    early, other = experience(), experience(seed=1)
    ended = slice(0, 2)
    early.terminated[:, ended] = 1
    otherwise = replace(
        early,
        **{name: getattr(early, name).clone() for name in ("observation", "action", "reward")},
    )
    for name, after in (("observation", 2), ("action", 1), ("reward", 1)):
        getattr(otherwise, name)[after:, ended] = getattr(other, name)[after:, ended]
    weights = []
    for batch in (early, otherwise):
        model = random_model(params)
        torch.manual_seed(0)
        Watched(model, params).update(batch, 0.0)
        weights.append(kept(model))
    assert not changed(*weights)


def test_every_weight_is_moved_by_one_optimiser_at_its_own_rate() -> None:
    params = parameters(optimiser={"lr": 1e-3, "encoder_lr_scale": 0.5, "policy_eps": 1e-8})
    model = random_model(params)
    before = {name: [x.detach().clone() for x in g] for name, g in everything(model).items()}

    Watched(model, params).update(experience(), 0.0)

    rates = {"encoder": 5e-4}
    for name, group in model.groups().items():
        for now, was in zip(group, before[name], strict=True):
            # The first step of Adam is as long as its rate, whatever the gradient is.
            longest = float((now - was).abs().max().detach())
            assert longest == pytest.approx(rates.get(name, 1e-3), rel=0.01), name


def test_averages_follow_by_their_rates_and_nothing_else() -> None:
    params = parameters(value={"target_rate": 0.25}, encoder={"average_rate": 0.5})
    model = random_model(params)
    before = kept(model)

    Watched(model, params).update(experience(), 0.0)

    pairs = {
        "averages.value.": ("parts.value.", 0.25),
        "averages.auxiliary.": ("parts.auxiliary.", 0.25),
        "averages.encoder.": ("encoder.", 0.5),
    }
    seen, now = set(), kept(model)
    for name, average in now.items():
        for prefix, (online, rate) in pairs.items():
            if name.startswith(prefix):
                seen.add(prefix)
                expected = torch.lerp(before[name], now[name.replace(prefix, online)], rate)
                torch.testing.assert_close(average, expected)
    assert seen == pairs.keys()
    assert not any(weight.requires_grad for weight in everything(model)["rest"])


class NoReading(TorchDispatchMode):
    """Refuses to tell what is in a tensor, for which a GPU would have to be waited for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked = (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero)
        assert func.overloadpacket not in asked, "the update asked a tensor for its value"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mix", MIXES)
def test_an_update_waits_for_nothing_and_its_metrics_stay_tensors(mix: str) -> None:
    params = parameters(**MIXES[mix])
    updater = Watched(random_model(params), params)
    sequences = experience()
    # What an update is made of; the watching would ask.
    updater._step = super(Watched, updater)._step  # type: ignore[method-assign]
    with NoReading():
        found = [updater.update(sequences, index / 2) for index in range(2)]
        with pytest.raises(AssertionError, match="tensor"):
            float(found[0]["loss/total"])
    for metrics in found:
        assert all(type(each) is Tensor and each.ndim == 0 for each in metrics.values())
        assert not any(each.requires_grad for each in metrics.values())
        assert bool(torch.stack(list(metrics.values())).isfinite().all())
    assert found[0].keys() == found[1].keys() > {"loss/value", "loss/policy", "loss/optimistic"}


def test_awr_does_not_mind_what_all_candidates_of_a_start_are_worth() -> None:
    own = {**AWR["params"], "normaliser": "state_std"}  # type: ignore[dict-item]
    params = parameters(policy_loss={"name": "awr", "params": own})
    model = random_model(params)
    updater = Updater(model, losses_of(params), params, DISCOUNTS)
    torch.manual_seed(0)
    _, _, imagined = updater.model_loss(experience())

    def learned(target: Tensor) -> list[Tensor]:
        torch.manual_seed(0)
        loss, _ = updater.policy_loss("policy", imagined._replace(target=target), torch.zeros(()))
        return [loss.detach(), *torch.autograd.grad(loss, model.groups()["policy"])]

    before = learned(imagined.target)
    shift = torch.linspace(-3, 3, len(imagined.start))[:, None]
    torch.testing.assert_close(learned(imagined.target + shift), before, rtol=1e-4, atol=1e-5)
    turned = learned(-imagined.target)
    assert not torch.allclose(turned[0], before[0], rtol=1e-3)


def svg_run(directory: Path, registry: Registry) -> dict[str, Tensor]:
    """Final weights of a run with SVG as its only policy loss."""
    small = {
        "total_steps": 60,
        "policy_loss": "svg",
        "collection": {"seed_steps": 40, "seed_updates": 5},
        "learning": {"updates_per_step": 0.25},
        "reporting": {"evaluation_episodes": 0},
    }
    config = {
        "algorithm": {"name": "latent", "params": merged(AGENT, small)},
        "runs": str(directory),
        "seed": 3,
    }
    read = RunConfig.model_validate(config, context={"registry": registry})
    result = Experiment.start(read, registry=registry).result
    assert isinstance(result, LatentResult)
    return kept(result.model)


@pytest.mark.slow
def test_svg_learns_the_same_to_the_last_bit_whether_awr_is_there_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "awr" in discover().names("policy_loss")
    build(parameters().policy_loss)
    beside = svg_run(tmp_path, discover())

    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", "empo-awr")
    for name in [name for name in sys.modules if name.partition(".")[0] == "empo_awr"]:
        monkeypatch.setitem(sys.modules, name, None)  # So it cannot be imported.
    assert "awr" not in discover().names("policy_loss")
    alone = svg_run(tmp_path, discover())

    assert changed(beside, alone) == []
