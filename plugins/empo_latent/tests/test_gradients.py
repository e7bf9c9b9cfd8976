from typing import Any

import pytest
import torch
from latent_world_losses import world_losses
from torch import Tensor

from empo_latent.learning.gradient_contract import (
    CONTRACT,
    SUMS,
    GradientContractError,
    check_gradients,
    contract,
)
from empo_latent.learning.latent_rollout import policy_rollout
from empo_latent.learning.loss_terms import alive, step_weights
from empo_latent.learning.policy_batch import critic, judged_batch
from empo_latent.learning.targets import (
    auxiliary_target,
    auxiliary_targets,
    td_targets,
    value_target,
)
from empo_latent.learning.value_losses import (
    auxiliary_loss,
    prediction_latents,
    q_target,
    q_value_loss,
    value_loss,
)
from empo_latent.params import LatentParams
from empo_latent.types import SequenceBatch

GAMMA = torch.tensor(0.9).double()
FULL: dict[str, Any] = {
    "latents": {"heads": 2},
    "reward": {"heads": 2, "episodic": True},
    "encoder": {"consistency_coef": 1.0, "target": "average"},
    "auxiliary": {"discounts": [0.5]},
    "value": {"heads": 2},
}


def with_only(name: str, params: LatentParams) -> LatentParams:
    """The same, but of the world model's losses only this one counts."""
    encoder, latents, reward = params.encoder, params.latents, params.reward
    return params.model_copy(
        update={
            "latents": latents.model_copy(
                update={"consistency_coef": latents.consistency_coef * (name == "consistency")}
            ),
            "encoder": encoder.model_copy(
                update={"consistency_coef": float(name == "encoder_consistency")}
            ),
            "reward": reward.model_copy(
                update={
                    "coef": reward.coef * (name == "reward"),
                    "termination_coef": float(name == "termination"),
                }
            ),
        }
    )


def weighed(sequences: SequenceBatch) -> Tensor:
    moments = len(sequences.observation)
    return step_weights(0.5, moments, False).double()[:, None] * alive(sequences)


def loss_of(name: str, model: Any, sequences: SequenceBatch, params: LatentParams) -> Tensor:
    """The loss of that name, made as an update makes it."""
    task = sequences.task
    encodings = model.encode(sequences.observation, task=task, training=True)
    targets = model.encode(sequences.observation, task=task, average=True)
    rho, weight = step_weights(0.5, 3, False).double(), weighed(sequences)
    world, predicted = world_losses(
        model, sequences, encodings, targets, with_only(name, params), rho
    )
    if name in {"consistency", "encoder_consistency", "reward", "termination"}:
        return world.total
    rollout = policy_rollout(model, encodings, candidates=3, task=task)
    td, _ = td_targets(model, rollout, GAMMA)
    latents = prediction_latents(encodings, predicted, params.value.gradient)
    if name == "value" and params.value.critic == "q":
        target = q_target(model, sequences, encodings, GAMMA, params.value)
        return q_value_loss(model, sequences, latents, target, weight[:-1], params.value).total
    if name == "value":
        target = value_target(td, params.value, 4, 2, 3)
        return value_loss(model, latents, target, weight, params.value, task=task).total
    if name == "auxiliary":
        gammas = torch.tensor(params.auxiliary.discounts).double()
        found = auxiliary_targets(model, rollout, gammas)
        target = auxiliary_target(found, params.auxiliary, 4, 2)
        auxiliary = params.auxiliary
        return auxiliary_loss(model, encodings, target, weight, auxiliary, task=task).total
    batch = judged_batch(rollout, td, weight)
    starts_task = None if task is None else task.repeat(4)
    policy = model.policy(batch.start, task=starts_task, optimistic=name == "optimistic")
    score = policy.log_prob(batch.action)
    regression = -(batch.weight * (batch.target.mean(-1).softmax(0) * score).sum(0)).mean()
    u = policy.rsample()
    judge = critic(model, GAMMA, starts_task)
    with torch.no_grad():
        slope = torch.func.grad(lambda u: judge(batch.start, u).mean(-1).sum())(u.detach())
    return regression - (batch.weight * (slope * u).sum(-1)).mean()


def reached(name: str, model: Any, sequences: SequenceBatch, params: LatentParams) -> set[str]:
    """The groups that the loss gives gradients; ``rest`` is all that should never have any."""
    model.zero_grad(set_to_none=True)
    loss_of(name, model, sequences, params).backward()
    groups = model.groups()
    known = {id(each) for members in groups.values() for each in members}
    groups["rest"] = [each for each in model.parameters() if id(each) not in known]
    return {
        group
        for group, members in groups.items()
        if any(each.grad is not None and each.grad.any() for each in members)
    }


TABLE: list[tuple[str, dict[str, Any], str]] = [
    ("consistency", {}, "dynamics encoder task"),
    ("encoder_consistency", {}, "encoder task"),
    ("reward", {}, "reward dynamics encoder task"),
    ("reward", {"reward": {"predict_from": "encoding"}}, "reward encoder task"),
    ("termination", {}, "termination dynamics encoder task"),
    ("termination", {"reward": {"predict_from": "encoding"}}, "termination encoder task"),
    ("value", {}, "value dynamics encoder task"),
    ("value", {"value": {"gradient": "encoder"}}, "value encoder task"),
    ("value", {"value": {"gradient": "none"}}, "value task"),
    ("value", {"value": {"critic": "q"}}, "value dynamics encoder task"),
    ("value", {"value": {"critic": "q", "gradient": "encoder"}}, "value encoder task"),
    ("value", {"value": {"critic": "q", "gradient": "none"}}, "value task"),
    ("auxiliary", {}, "auxiliary encoder task"),
    ("policy", {}, "policy"),
    ("policy", {"value": {"critic": "q"}}, "policy"),
    ("optimistic", {}, "optimistic"),
]
"""Which groups each loss teaches; the gradient of every other is None or exactly 0."""


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize(("name", "options", "expected"), TABLE)
def test_losses_teach_their_groups_and_no_others(
    small: Any, lab: Any, name: str, options: dict[str, Any], expected: str, tasks: int
) -> None:
    groups = {key: {**group, **options.get(key, {})} for key, group in FULL.items()}
    params = small(**groups)
    model = lab.model(params, tasks=tasks, optimistic=True)
    wanted = set(expected.split()) - ({"task"} if tasks == 1 else set())
    sequences = lab.sequences(tasks=tasks)
    assert reached(name, model, sequences, params) == wanted
    check_gradients(model, name, params)
    reach = contract(name, params)
    assert reach.must | reach.may == set(expected.split())


def test_the_table_covers_all_losses_and_all_groups(small: Any, lab: Any) -> None:
    assert {name for name, _, _ in TABLE} == CONTRACT.keys()
    assert all(set(parts) <= CONTRACT.keys() for parts in SUMS.values())
    groups = lab.model(small(**FULL), tasks=2, optimistic=True).groups()
    assert {group for _, _, groups in TABLE for group in groups.split()} == groups.keys()


def test_sums_of_losses_reach_what_their_parts_reach(small: Any, lab: Any) -> None:
    params = small(**FULL)
    model, sequences = lab.model(params, tasks=2, optimistic=True), lab.sequences(tasks=2)
    for name, parts in SUMS.items():
        model.zero_grad(set_to_none=True)
        torch.stack([loss_of(part, model, sequences, params) for part in parts]).sum().backward()
        check_gradients(model, name, params)
    assert contract("model", params).must == {
        "dynamics",
        "encoder",
        "reward",
        "termination",
        "value",
        "auxiliary",
    }


def test_a_policy_learns_after_the_model_has_moved_and_leaves_it_alone(
    small: Any, lab: Any
) -> None:
    params = small(**FULL)
    model, sequences = lab.model(params, tasks=2, optimistic=True), lab.sequences(tasks=2)
    encodings = model.encode(sequences.observation, task=sequences.task)
    losses, _ = world_losses(
        model, sequences, encodings, encodings, params, step_weights(0.5, 3, False).double()
    )
    rollout = policy_rollout(model, encodings, candidates=3, task=sequences.task)
    td, _ = td_targets(model, rollout, GAMMA)
    batch = judged_batch(rollout, td, weighed(sequences))
    losses.total.backward()
    weights = [weight for name in ("encoder", "dynamics") for weight in model.groups()[name]]
    torch.optim.SGD(weights, lr=0.1).step()  # In place, as optimisers do.
    before = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    kept = {name: grad.clone() for name, grad in before.items()}
    task = torch.tensor([0, 1]).repeat(4)
    score = model.policy(batch.start, task=task).log_prob(batch.action)
    (batch.target.mean(-1).softmax(0) * score).mean().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in model.groups()["policy"][:1])
    for name, each in model.named_parameters():
        if not name.startswith("heads.policy"):
            grad = kept.get(name)
            assert each.grad is None if grad is None else torch.equal(each.grad, grad)


def prepared(small: Any, lab: Any) -> tuple[Any, LatentParams]:
    params = small(**FULL)
    model = lab.model(params, optimistic=True)
    loss_of("value", model, lab.sequences(), params).backward()
    check_gradients(model, "value", params)
    return model, params


def test_the_check_names_a_parameter_that_a_loss_must_leave_alone(small: Any, lab: Any) -> None:
    model, params = prepared(small, lab)
    model.heads["policy"].weights[1].grad = torch.ones_like(model.heads["policy"].weights[1])
    match = r"'value' .*'heads.policy.weights.1' \(group 'policy'\)"
    with pytest.raises(GradientContractError, match=match):
        check_gradients(model, "value", params)


def test_the_check_names_an_average_that_got_a_gradient(small: Any, lab: Any) -> None:
    model, params = prepared(small, lab)
    weight = model.averages["value"].biases[0].requires_grad_()
    weight.grad = torch.ones_like(weight)
    with pytest.raises(GradientContractError, match=r"'averages.value.biases.0' \(no group"):
        check_gradients(model, "value", params)


def test_the_check_names_a_group_that_a_loss_should_teach(small: Any, lab: Any) -> None:
    model, params = prepared(small, lab)
    for weight in model.groups()["value"]:
        weight.grad = None
    with pytest.raises(GradientContractError, match=r"'value' .*group 'value'"):
        check_gradients(model, "value", params)


def test_gradients_that_are_0_are_as_good_as_none(small: Any, lab: Any) -> None:
    model, params = prepared(small, lab)
    for weight in model.groups()["policy"]:
        weight.grad = torch.zeros_like(weight)
    check_gradients(model, "value", params)
    for weight in model.groups()["value"]:
        weight.grad = torch.zeros_like(weight)
    with pytest.raises(GradientContractError, match="group 'value'"):
        check_gradients(model, "value", params)


def test_options_decide_whether_a_gradient_is_allowed(small: Any, lab: Any) -> None:
    model, _ = prepared(small, lab)  # Predicted along the rollout.
    options = {**FULL, "value": {**FULL["value"], "gradient": "encoder"}}
    with pytest.raises(GradientContractError, match=r"'dynamics\.\S+' \(group 'dynamics'\)"):
        check_gradients(model, "value", small(**options))


def test_a_fresh_model_whose_heads_are_0_keeps_the_contract(small: Any, lab: Any) -> None:
    params = small(**FULL)
    model = lab.model(params, optimistic=True)
    with torch.no_grad():
        for heads in (model.heads["reward"], model.heads["value"], model.heads["termination"]):
            heads.weights[-1].zero_()
            heads.biases[-1].zero_()
    for name in ("reward", "value", "termination"):
        model.zero_grad(set_to_none=True)
        loss_of(name, model, lab.sequences(), params).backward()
        check_gradients(model, name, params)


def test_losses_that_do_not_exist_are_refused(small: Any) -> None:
    with pytest.raises(ValueError, match="'other'"):
        contract("other", small())
