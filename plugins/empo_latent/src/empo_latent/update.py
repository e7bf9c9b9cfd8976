"""One update of the latent agent: world, imagine, targets, value, policy.

The terms of the model's loss are those of Hansen et al. 2024, eq. 3; the values and policies learn
from one-step returns of candidate actions, which are worked out once for both. ``Updater`` has the
order of the steps; the equation of a policy loss is in its component, e.g. ``awr`` or ``svg``.

**Shapes.** A batch has ``B`` sequences of ``T`` steps (axis ``time``) between ``T + 1`` moments.
Wherever starts are meant, moments and sequences become one axis ``start``, in the order
``moment * B + sequence``, and candidates come before it: ``[candidate start ...]``. Where moments
or steps are both possible, that axis is ``place``. Heads of an ensemble come first.

**Weights.** Every loss is a mean of a weight times an error; ``weights_of`` makes all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from empo_core.protocols import Critic, PolicyLoss
from empo_core.trees import StateDict
from empo_core.types import CandidateBatch
from empo_latent.networks.ensemble import drawn_heads
from empo_latent.networks.model import LatentModel, Network
from empo_latent.params import AuxiliaryParams, LatentParams, ValueParams
from empo_latent.types import SequenceBatch
from empo_learning.distributions import BoundedNormal
from empo_learning.optimiser_moments import load_moments, moments_of
from empo_learning.policy_losses import joined_heads


def num_candidates(params: LatentParams, losses: Mapping[str, PolicyLoss]) -> int:
    """Actions tried at each state: as many as params say, or the loss likes that likes most."""
    return params.imagination.candidates or max(loss.needs.candidates for loss in losses.values())


# --- Weights -------------------------------------------------------------------------------------


class Weights(NamedTuple):
    """Weights of errors in losses; all are 0 at padding, and after the end of an episode.

    Attributes:
        happened: Of terminations: 1.
        step: Of consistency, rewards, and values of actions: ``learning.rho ** t``.
        start: Of the policies' starts: ``imagination.rho ** s``, 0 where an episode has ended.
        value: Of values at starts: the same, but for the moment that ended an episode, which is
            learned to be worth 0.
        alive: 1 at starts at which the episode goes on, else 0: what targets are multiplied by.
    """

    happened: Float[Tensor, "time sequence"]
    step: Float[Tensor, "time sequence"]
    start: Float[Tensor, " start"]
    value: Float[Tensor, " start"]
    alive: Float[Tensor, " start"]


def weights_of(
    sequences: SequenceBatch, step_rho: Float[Tensor, " time"], start_rho: Float[Tensor, " moment"]
) -> Weights:
    """The weights of all errors on a batch.

    An episode that ended is worth nothing, whatever its last observation looks like, and there
    is nothing to decide in it. An episode that was cut off goes on, but what is padding after its
    last observation never happened.
    """
    goes_on = torch.cumprod(1 - sequences.terminated.squeeze(-1), 0)
    first = torch.ones_like(goes_on[:1])
    valid = torch.ones_like(goes_on)
    if sequences.valid is not None:
        valid = sequences.valid.squeeze(-1)
    alive = torch.cat([first, goes_on * valid])
    happened = alive[:-1] * valid
    until_end = torch.cat([first, happened])
    rho = start_rho[:, None]
    return Weights(
        happened,
        step_rho[:, None] * happened,
        (rho * alive).flatten(),
        (rho * until_end).flatten(),
        alive.flatten(),
    )


def powers(rho: float, number: int) -> Float[Tensor, " {number}"]:
    """``rho ** i`` for ``i`` from 0 on."""
    return torch.tensor([rho**i for i in range(number)], dtype=torch.float64).float()


# --- World ---------------------------------------------------------------------------------------


def latent_rollout(
    model: LatentModel,
    start: Float[Tensor, "sequence latent"],
    sequences: SequenceBatch,
) -> Float[Tensor, "moment dynamics sequence latent"]:
    """Latents predicted along recorded actions: ``p_0 = start``, ``p_{t+1} = f_h(p_t, a_t)``.

    Each dynamics head ``h`` goes on from its own latent, the first of which is the same for all.
    Gradients go back to the start and to the heads.
    """
    task = sequences.task
    latent = model.next_latent(start, sequences.action[0], task=task)
    path = [start.expand_as(latent), latent]
    for action in sequences.action[1:].unbind(0):
        latent = model.next_latent(latent, action, task=task, split=True)
        path.append(latent)
    return torch.stack(path)


def reward_errors(
    model: LatentModel,
    sequences: SequenceBatch,
    predicted: Float[Tensor, "moment dynamics sequence latent"],
) -> Float[Tensor, "time sequence"]:
    """``CE(R(p_t, a_t), bins(r_t))``, mean over reward and dynamics heads."""
    action, reward = sequences.action[:, None], sequences.reward[:, None]
    logits = model.logits("reward", predicted[:-1], action, task=sequences.task)
    return model.two_hot.cross_entropy(logits, reward).mean((0, 2))


def termination_errors(
    model: LatentModel,
    sequences: SequenceBatch,
    predicted: Float[Tensor, "moment dynamics sequence latent"],
) -> Float[Tensor, "time sequence"]:
    """Binary cross-entropy of ``d_t`` at ``p_{t+1}``, mean over dynamics heads."""
    logits = model.logits("termination", predicted[1:], task=sequences.task)[0]
    ended = sequences.terminated[:, None].expand_as(logits)
    return F.binary_cross_entropy_with_logits(logits, ended, reduction="none").mean((1, 3))


# --- Imagine -------------------------------------------------------------------------------------


class Imagined(NamedTuple):
    """Starts and candidate actions, as plain constants that one compiled graph hands to another.

    Attributes:
        start: Latents that imagination starts from.
        task: Their tasks; None where there is one.
        discount: Their discounts, or one for all.
        u: Candidates as the policy's distribution measures them.
        log_prob: Their log-probability under the proposal.
        target: One-step return of each by each combination of heads; NaN where nothing reads it.
        weight: Weight of each start in policy losses.
        loc: Of the proposal; so are the next two.
        log_std: See ``loc``.
        active: See ``loc``.
        expert: Mean and log standard deviation of the expert; None where nothing is known of it.
    """

    start: Float[Tensor, "start latent"]
    task: Int[Tensor, " start"] | None
    discount: Float[Tensor, " per_task"]
    u: Float[Tensor, "candidate start action"]
    log_prob: Float[Tensor, "candidate start"]
    target: Float[Tensor, "candidate start head"]
    weight: Float[Tensor, " start"]
    loc: Float[Tensor, "start action"]
    log_std: Float[Tensor, "start action"]
    active: Bool[Tensor, "*start action"] | None
    expert: Float[Tensor, "start 2 action"] | None = None

    def batch(self, *, with_expert: bool, progress: Float[Tensor, ""]) -> CandidateBatch:
        """The batch as policy losses take it; ``progress`` is the share of the run that is done."""
        weight, expert = self.weight, None
        if with_expert:
            assert self.expert is not None
            # There is no plan before learning began, nor at the last moment of a sequence.
            weight = weight * self.expert.isfinite().all(-1).all(-1)
            mean, log_std = self.expert.nan_to_num(0.0).unbind(1)
            expert = BoundedNormal(mean, log_std, active=self.active)
        proposal = BoundedNormal(self.loc, self.log_std, active=self.active)
        return CandidateBatch(
            start=self.start,
            action=self.u,
            target=self.target,
            log_prob=self.log_prob,
            weight=weight,
            proposal=proposal,
            expert=expert,
            progress=progress,
        )


@torch.no_grad()
def imagine(
    model: LatentModel,
    start: Float[Tensor, "moment sequence latent"],
    weight: Float[Tensor, " start"],
    sequences: SequenceBatch,
    discounts: Float[Tensor, " task"],
    candidates: int,
) -> Imagined:
    """So many candidate actions at every start, drawn by the policy or by its running average."""
    task, discount, expert = sequences.task, discounts[:1], sequences.expert
    if task is not None:
        task = task.repeat(len(start))
        discount = discounts[task]
    if expert is not None:  # There is none at the last moment.
        unknown = torch.full_like(expert[:1], torch.nan)
        expert = torch.cat([expert, unknown]).flatten(0, 1)
    starts = start.flatten(0, 1)
    proposal = model.policy(starts, task=task, average=True)
    u = proposal.sample((candidates,))
    log_prob = proposal.log_prob(u)
    return Imagined(
        starts,
        task,
        discount,
        u,
        log_prob,
        torch.full_like(log_prob, torch.nan).unsqueeze(-1),
        weight,
        proposal.loc,
        proposal.log_std,
        proposal.active,
        expert,
    )


# --- Targets -------------------------------------------------------------------------------------


class OneStep(NamedTuple):
    """What a model says of one step: rewards, latents, and how likely the episode goes on."""

    reward: Float[Tensor, " reward *batch"]
    latent: Float[Tensor, "dynamics *batch latent"]
    goes_on: Float[Tensor, "dynamics *batch 1"]

    def returns(
        self, value: Float[Tensor, "value dynamics *batch 1"], discount: Float[Tensor, "*per_task"]
    ) -> Float[Tensor, "reward dynamics value *batch"]:
        """``r_r(z, a) + discount * (1 - d_h) * V_e(f_h(z, a))``, by each combination of heads."""
        later = (self.goes_on * value).squeeze(-1).transpose(0, 1)
        return self.reward[:, None, None] + discount * later


def one_step(
    model: LatentModel,
    start: Float[Tensor, "*#batch latent"],
    u: Float[Tensor, "*batch action"],
    task: Int[Tensor, "*some"] | None,
) -> OneStep:
    """One step of every head, from starts that are repeated over axes in front of ``u``.

    Networks read numbers of an action that a task does not use as 0.
    """
    start, action = start.expand(*u.shape[:-1], -1), u.tanh()
    reward = model.reward(start, action, task=task).squeeze(-1)
    latent = model.next_latent(start, action, task=task)
    return OneStep(reward, latent, 1 - model.termination(latent, task=task))


def action_values(
    model: LatentModel,
    start: Float[Tensor, "*#batch latent"],
    u: Float[Tensor, "*batch action"],
    *,
    discount: Float[Tensor, "*per_task"],
    task: Int[Tensor, "*some"] | None = None,
    network: Network = "online",
    heads: Int[Tensor, " chosen"] | None = None,
    step: OneStep | None = None,
) -> Float[Tensor, "reward dynamics value *batch"]:
    """What actions are worth, by each combination of heads; differentiable in them.

    With critic ``v`` that is the return of one ``step``, which is made here if it has not been
    yet; with ``q`` the value heads say it. Of these, ``heads`` are asked, or all. There is one
    discount, or one for each start. Starts are repeated over axes in front of ``u``.
    """
    ask = partial(model.value, task=task, network=network, heads=heads)
    if model.critic == "q":
        start, action = start.expand(*u.shape[:-1], -1), u.tanh()
        return ask(start, action).squeeze(-1)[None, None]
    step = one_step(model, start, u, task) if step is None else step
    return step.returns(ask(step.latent), discount)


def policy_critic(
    model: LatentModel,
    discount: Float[Tensor, "*per_task"],
    task: Int[Tensor, "*batch"] | None = None,
    heads: Int[Tensor, " chosen"] | None = None,
) -> Critic:
    """``action_values`` by the online networks, as policy losses ask for them: ``[... head]``.

    The model's parameters are used as they are: a loss that must leave them without gradients
    asks for the gradient in the actions alone, as the policy losses do.
    """

    def values(
        features: Float[Tensor, "*some feature"], u: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch head"]:
        estimates = action_values(model, features, u, discount=discount, task=task, heads=heads)
        return estimates.flatten(0, 2).movedim(0, -1)

    return values


def bootstrapped(
    heads: Float[Tensor, "chosen ..."], params: ValueParams
) -> Float[Tensor, "value ..."]:
    """The estimate that each value head learns from, given those of all heads, or of a pair."""
    if params.bootstrap == "local":
        return heads
    if len(heads) > 2:
        heads = heads.index_select(0, drawn_heads(len(heads), 2, heads.device))
    minimum = heads.amin(0)
    return minimum.expand(params.heads, *minimum.shape)


@torch.no_grad()
def recorded_targets(
    model: LatentModel,
    sequences: SequenceBatch,
    encodings: Float[Tensor, "moment sequence latent"],
    discount: Float[Tensor, "*per_task"],
    params: ValueParams,
) -> Float[Tensor, "value time sequence"]:
    """Targets of recorded actions: ``r + discount * (1 - d) * Q_e(z', a')``, as in TD-MPC2.

    ``a'`` is drawn by the policy at the encoding ``z'`` of what came next.
    """
    after = encodings[1:].detach()
    policy = model.policy(after, task=sequences.task)
    action = policy.bounded(policy.sample())
    # Of a pair drawn at random no other heads are computed.
    pair = params.bootstrap == "pair" and params.heads > 2
    heads = drawn_heads(params.heads, 2, after.device) if pair else None
    value = model.value(after, action, task=sequences.task, network="target", heads=heads)
    later = (1 - sequences.terminated.squeeze(-1)) * bootstrapped(value.squeeze(-1), params)
    return sequences.reward.squeeze(-1) + discount * later


# --- Value ---------------------------------------------------------------------------------------


class Estimates(NamedTuple):
    """Values that are learned, and their targets.

    Attributes:
        logits: Predictions.
        target: Targets of each head; the loss is the mean over several.
        weight: Weight of each place: of a start, or of a recorded step in the same order.
    """

    logits: Float[Tensor, "head place bin"]
    target: Float[Tensor, "head target place"]
    weight: Float[Tensor, " place"]

    def errors(self, model: LatentModel) -> Float[Tensor, " place"]:
        """Cross-entropy between values and their targets, mean over heads and targets."""
        logits, target = self.logits.unsqueeze(1), self.target.detach().unsqueeze(-1)
        return model.two_hot.cross_entropy(logits, target).mean((0, 1))

    def metrics(self, model: LatentModel, prefix: str) -> dict[str, Tensor]:
        """Numbers for people, and how far values are off where anything counts."""
        predicted = model.two_hot.decode(self.logits.detach()).squeeze(-1)
        aim = self.target.mean(1)
        counts = (self.weight > 0).to(self.weight).expand_as(predicted)
        error = ((predicted - aim).abs() * counts).sum() / counts.sum().clamp(min=1)
        return {
            f"value/{prefix}mean": predicted.mean(),
            f"value/{prefix}error": error,
            f"value/{prefix}target_mean": aim.mean(),
            f"value/{prefix}prediction_disagreement": disagreement(predicted),
        }


# --- The update ----------------------------------------------------------------------------------


class Updater:
    """Improves a model and its policies by sequences of experience.

    Attributes:
        needs_expert: Whether sequences must say how the planner would have acted.
    """

    def __init__(
        self,
        model: LatentModel,
        losses: Mapping[str, PolicyLoss],
        params: LatentParams,
        discounts: Float[Tensor, " task"],
    ) -> None:
        """Set up the optimisers of a model, and of a policy for each of the losses by name."""
        self._model, self._params, self._discounts = model, params, discounts
        device, horizon = discounts.device, params.learning.horizon
        self._losses = {name: loss.to(device) for name, loss in losses.items()}
        needs = [loss.needs for loss in losses.values()]
        self.needs_expert = any(need.expert for need in needs)
        self._reads_targets = params.value.critic == "v" or any(need.targets for need in needs)
        self._candidates = num_candidates(params, losses)
        self._step_rho = powers(params.learning.rho, horizon).to(device)
        self._start_rho = powers(params.imagination.rho, horizon + 1).to(device)
        auxiliary = params.auxiliary or AuxiliaryParams(discounts=[0.0])
        self._gammas = torch.tensor(auxiliary.discounts, device=device)[:, None, None]
        self._coefs = {
            "consistency": params.latents.consistency_coef,
            "reward": params.reward.coef,
            "termination": params.reward.termination_coef,
            "value": params.value.coef,
            "auxiliary": auxiliary.coef,
        }
        self._parameters, self._optimiser = self._of_model()
        optimiser, groups = params.optimiser, model.groups()
        self._policies = {name: groups[name] for name in losses}
        self._policy_optimisers = {
            name: _adam([{"params": group, "lr": optimiser.lr}], params, eps=optimiser.policy_eps)
            for name, group in self._policies.items()
        }
        self._model_loss = self._compiled(self.model_loss)
        self._policy_loss = self._compiled(self.policy_loss)

    def update(
        self, sequences: SequenceBatch, progress: float, *, lr_factor: float = 1.0
    ) -> dict[str, Tensor]:
        """One update: the model, then each policy, then the running averages.

        A policy learns from constants, after the model has moved: its gradient cannot reach it.

        Args:
            sequences: Experience.
            progress: Share of the run that is done, for schedules of losses.
            lr_factor: Factor of all learning rates.

        Returns:
            Metrics, 0-d tensors, by their names in ``docs/reference/metrics.md``.
        """
        compiles = self._params.compute.compile
        if compiles:
            # CUDA graphs may write over what they returned in the last update, but in this one
            # policies need what the model's graph returned.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        metrics: dict[str, Tensor]
        loss, metrics, imagined = self._model_loss(sequences)
        loss.backward()
        metrics["optim/grad_norm_model"] = self._step(self._optimiser, self._parameters, lr_factor)

        share_done = loss.new_full((), progress)
        for name in self._losses:
            loss, numbers = self._policy_loss(name, imagined, share_done)
            loss.backward()
            norm = self._step(self._policy_optimisers[name], self._policies[name], lr_factor)
            prefix = "policy/" if name == "policy" else f"policy/{name}_"
            metrics |= {f"{prefix}{key}": number for key, number in numbers.items()}
            metrics |= {f"loss/{name}": loss.detach(), f"optim/grad_norm_{name}": norm}

        self._model.update_targets()
        if compiles:  # The same numbers in memory of their own, by one copy of all.
            return dict(zip(metrics, torch.stack(list(metrics.values())).unbind(), strict=True))
        return metrics

    def model_loss(
        self, sequences: SequenceBatch
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor], Imagined]:
        """The loss of world model and values, metrics, and what policies learn from.

        L = c_p consistency + c_r reward [+ c_d termination] + c_v value [+ c_x auxiliary], each a
        mean of a weight times an error
        """
        model, params = self._model, self._params
        weights = weights_of(sequences, self._step_rho, self._start_rho)

        # World: encodings z, and latents predicted from z[0] along the actions that were taken.
        z, predicted, errors = self._world(sequences, weights)
        metrics = step_metrics(errors, weights.happened)
        metrics["value/latent_variance"] = variance(z, 1).mean()
        metrics["value/latent_disagreement"] = variance(predicted[1:], 1).mean()

        # Of several dynamics heads the first says where predictions serve as latents.
        first = predicted[:, 0]

        # Imagine: candidate actions of the policy at every start.
        start = z if params.imagination.start == "encoding" else first
        imagined = imagine(
            model, start.detach(), weights.start, sequences, self._discounts, self._candidates
        )

        # Targets: what each candidate is worth, by each combination of heads.
        y = step = None
        if params.value.critic == "v" or params.auxiliary is not None:
            with torch.no_grad():
                step = one_step(model, imagined.start, imagined.u, imagined.task)
        if self._reads_targets:
            with torch.no_grad():
                y = action_values(
                    model,
                    imagined.start,
                    imagined.u,
                    discount=imagined.discount,
                    task=imagined.task,
                    network=params.imagination.critic,
                    step=step,
                )
            metrics |= target_metrics(y)
            heads = self._drawn_heads()
            returns = y if heads is None else y.index_select(2, heads)
            imagined = imagined._replace(target=returns.flatten(0, 2).movedim(0, -1))

        # Value: of states by the returns of candidates, or of the actions that were taken.
        latents = first if params.value.gradient == "rollout" else z
        if params.value.critic == "q":
            values = {"value": self._values_of_actions(sequences, z, latents, weights)}
        else:
            assert y is not None
            values = {"value": self._values_of_states(y, latents, weights, sequences.task)}
        if params.auxiliary is not None:
            assert step is not None
            values["auxiliary"] = self._auxiliary_values(step, imagined.task, z, weights)
        for name, estimates in values.items():
            errors[name] = estimates.errors(model), estimates.weight
            metrics |= estimates.metrics(model, "" if name == "value" else f"{name}_")

        losses = {name: (weight * error).mean() for name, (error, weight) in errors.items()}
        weighted = {name: self._coefs[name] * loss for name, loss in losses.items()}
        total = torch.stack(list(weighted.values())).sum()
        metrics |= {f"loss/{name}": loss.detach() for name, loss in losses.items()}
        metrics |= {f"loss/weighted_{name}": loss.detach() for name, loss in weighted.items()}
        metrics["loss/total"] = total.detach()
        return total, metrics, imagined

    def _world(
        self, sequences: SequenceBatch, weights: Weights
    ) -> tuple[Tensor, Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Encodings, predictions along recorded actions, and their errors, each with its weight.

        Consistency: ``|p_{t+1} - aim_{t+1}|^2``, mean over the latent's numbers and dynamics heads,
        where the aim is a constant: encodings of the encoder or of its running average.
        """
        model, task, observation = self._model, sequences.task, sequences.observation
        z = aim = model.encode(observation, task=task, training=True)
        if self._params.encoder.average_rate is not None:
            with torch.no_grad():
                aim = model.encode(observation, task=task, average=True)
        predicted = latent_rollout(model, z[0], sequences)
        squares = (predicted[1:] - aim.detach()[1:, None]).square().mean((1, 3))
        errors = {
            "consistency": (squares, weights.step),
            "reward": (reward_errors(model, sequences, predicted), weights.step),
        }
        if model.terminates:
            errors["termination"] = (
                termination_errors(model, sequences, predicted),
                weights.happened,
            )
        return z, predicted, errors

    def _values_of_states(
        self,
        y: Float[Tensor, "reward dynamics value candidate start"],
        latents: Float[Tensor, "moment sequence latent"],
        weights: Weights,
        task: Int[Tensor, " sequence"] | None,
    ) -> Estimates:
        """Values of starts, learned from the returns of candidates, or from their mean."""
        params = self._params.value
        target = bootstrapped(joined_heads(y, params.dynamics, (0, 1)), params) * weights.alive
        if params.average == "target":
            target = target.mean(1, keepdim=True)
        logits = self._model.logits("value", latents, task=task, training=True)
        return Estimates(logits.flatten(1, 2), target, weights.value)

    def _values_of_actions(
        self,
        sequences: SequenceBatch,
        z: Float[Tensor, "moment sequence latent"],
        latents: Float[Tensor, "moment sequence latent"],
        weights: Weights,
    ) -> Estimates:
        """Values of the actions that were taken."""
        model, task, params = self._model, sequences.task, self._params.value
        discount = self._discounts[:1] if task is None else self._discounts[task]
        target = recorded_targets(model, sequences, z, discount, params)
        logits = model.logits("value", latents[:-1], sequences.action, task=task, training=True)
        return Estimates(logits.flatten(1, 2), target.flatten(1)[:, None], weights.step.flatten())

    def _auxiliary_values(
        self,
        step: OneStep,
        task: Int[Tensor, " start"] | None,
        z: Float[Tensor, "moment sequence latent"],
        weights: Weights,
    ) -> Estimates:
        """Values of encodings under further discounts, which only shape the encoder."""
        model = self._model
        with torch.no_grad():
            y = step.returns(
                model.auxiliary(step.latent, task=task, network="target"), self._gammas
            )
            target = y.mean((0, 1, 3)).unsqueeze(1) * weights.alive
        logits = model.logits("auxiliary", z.flatten(0, 1), task=task, training=True)
        return Estimates(logits, target, weights.value)

    def policy_loss(
        self, name: str, imagined: Imagined, progress: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, ""], Mapping[str, Tensor]]:
        """The loss of ``policy`` or ``optimistic``, a component of its own, and its metrics."""
        loss, model, task = self._losses[name], self._model, imagined.task
        judge = None
        if loss.needs.critic:
            judge = policy_critic(model, imagined.discount, task, self._drawn_heads())
        distribution = model.policy(imagined.start, task=task, optimistic=name == "optimistic")
        batch = imagined.batch(with_expert=loss.needs.expert, progress=progress)
        output = loss(distribution, batch, judge)
        metrics = {
            key: torch.as_tensor(number, device=output.loss.device)
            for key, number in output.metrics.items()
        }
        return output.loss, metrics

    def take_in_parts(self) -> None:
        """Learn parts that the model has got since; what is known about the others stays."""
        state = self._optimiser.state
        self._parameters, self._optimiser = self._of_model()
        self._optimiser.state.update(state)
        if self._params.compute.compile:
            torch.compiler.reset()  # Graphs of the model as it was.

    def state_dict(self) -> StateDict:
        """State of the optimisers and of the losses."""
        return {
            "model": moments_of(self._optimiser),
            "policies": {
                name: moments_of(optimiser) for name, optimiser in self._policy_optimisers.items()
            },
            "losses": {name: dict(loss.state_dict()) for name, loss in self._losses.items()},
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        load_moments(self._optimiser, state_dict["model"])
        for name, optimiser in self._policy_optimisers.items():
            load_moments(optimiser, state_dict["policies"][name])
        for name, loss in self._losses.items():
            loss.load_state_dict(state_dict["losses"][name])

    def _drawn_heads(self) -> Int[Tensor, " chosen"] | None:
        """Value heads that judge actions for a policy loss; None: all."""
        chosen, heads = self._params.imagination.value_heads, self._params.value.heads
        if chosen is None or chosen >= heads:
            return None
        return drawn_heads(heads, chosen, self._discounts.device)

    def _of_model(self) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        """What the model's optimiser moves, and that optimiser."""
        rates, groups = self._params.optimiser, self._model.groups()
        elsewhere = {"encoder", "policy", "optimistic"}
        others = [
            parameter
            for name, group in groups.items()
            if name not in elsewhere
            for parameter in group
        ]
        optimiser = _adam(
            [
                {"params": groups["encoder"], "lr": rates.lr * rates.encoder_lr_scale},
                {"params": others, "lr": rates.lr},
            ],
            self._params,
        )
        return [*groups["encoder"], *others], optimiser

    def _step(
        self, optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], lr_factor: float
    ) -> Tensor:
        """Cut the gradient, follow it, and say how long it was."""
        longest = self._params.optimiser.max_grad_norm
        norm = nn.utils.clip_grad_norm_(parameters, math.inf if longest is None else longest)
        for group in optimiser.param_groups:
            group["lr"] = group["initial_lr"] * lr_factor
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return norm

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self._params.compute.compile:
            return function
        compiled = partial(torch.compile, function, fullgraph=True, dynamic=False)
        if torch.device(self._params.compute.device).type == "cuda":
            return compiled(mode="reduce-overhead")
        # For dropout, compiled loops draw one number after the other; torch draws many at once.
        return compiled(options={"fallback_random": True})


def _adam(
    groups: list[dict[str, Any]], params: LatentParams, eps: float = 1e-8
) -> torch.optim.Optimizer:
    decay = params.optimiser.weight_decay
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    groups = [{**group, "initial_lr": group["lr"]} for group in groups]
    return kind(groups, eps=eps, weight_decay=decay, fused=True)


# --- Numbers for people --------------------------------------------------------------------------


def step_metrics(
    errors: Mapping[str, tuple[Tensor, Tensor]], counts: Float[Tensor, "time sequence"]
) -> dict[str, Tensor]:
    """``loss/<name>_step_<t>``: mean errors at each step, over sequences in which it counts."""
    number = counts.sum(1).clamp(min=torch.finfo(counts.dtype).tiny)
    return {
        f"loss/{name}_step_{step}": mean
        for name in ("consistency", "reward")
        for step, mean in enumerate((errors[name][0].detach() * counts).sum(1) / number)
    }


def target_metrics(y: Float[Tensor, "reward dynamics value candidate start"]) -> dict[str, Tensor]:
    """What targets are like, and how much heads disagree on them."""
    return {
        "value/td_mean": y.mean(),
        "value/td_std": y.std(correction=0),
        "value/td_min": y.min(),
        "value/td_max": y.max(),
        "value/td_disagreement": disagreement(y.flatten(0, 2)),
    }


def disagreement(values: Float[Tensor, "head ..."]) -> Float[Tensor, ""]:
    """Mean standard deviation over heads; 0 for a single head, for which it would be NaN."""
    return variance(values, 0, correction=1).sqrt().mean()


def variance(
    values: Float[Tensor, "*shape"], axis: int, *, correction: int = 0
) -> Float[Tensor, "*rest"]:
    """The variance over an axis; 0 of a single number."""
    # On CPUs, var and std are up to a hundred times slower than this over axes before the last.
    values = values.detach()
    squares = (values - values.mean(axis, keepdim=True)).square().sum(axis)
    return squares / max(values.shape[axis] - correction, 1)
