"""One update: world model and values, the policies, then the target networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from empo_core.protocols import PolicyLoss
from empo_core.trees import StateDict, whole_number
from empo_latent.learning.agent_losses import AgentLosses
from empo_latent.learning.gradient_contract import check_gradients
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import SequenceBatch
from empo_learning.optimiser_moments import load_moments, moments_of

MODEL_GROUPS = ("task", "dynamics", "reward", "termination", "value", "auxiliary")
"""Groups that the model's optimiser moves, beside the encoder, which has its own rate."""


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
        self._model, self._params = model, params
        self._losses = {name: loss.to(discounts.device) for name, loss in losses.items()}
        self.needs_expert = any(loss.needs.expert for loss in losses.values())
        optimiser, groups = params.optimiser, model.groups()
        self._policies = {name: groups[name] for name in losses}
        self._weights, self._optimiser = self._of_model()
        rate = optimiser.lr * optimiser.policy_lr_scale
        self._policy_optimisers = {
            name: _adam([{"params": weights, "lr": rate}], params, eps=optimiser.policy_eps)
            for name, weights in self._policies.items()
        }
        self._updates = 0
        self._agent_losses = AgentLosses(model, losses, params, discounts)
        self._model_loss = self._compiled(self._agent_losses.model_loss)
        self._policy_loss = self._compiled(self._agent_losses.policy_loss)

    def _of_model(self) -> tuple[list[nn.Parameter], torch.optim.Optimizer]:
        """What the model's optimiser moves, and that optimiser."""
        rates, groups = self._params.optimiser, self._model.groups()
        others = [parameter for name in MODEL_GROUPS for parameter in groups.get(name, [])]
        optimiser = _adam(
            [
                {"params": groups["encoder"], "lr": rates.lr * rates.encoder_lr_scale},
                {"params": others, "lr": rates.lr},
            ],
            self._params,
        )
        return [*groups["encoder"], *others], optimiser

    def take_in_heads(self) -> None:
        """Learn heads that the model has got since; what is known about the others stays."""
        state = self._optimiser.state
        self._weights, self._optimiser = self._of_model()
        self._optimiser.state.update(state)
        if self._params.compute.compile:
            torch.compiler.reset()  # Graphs of the model as it was.

    def update(self, sequences: SequenceBatch, progress: float) -> dict[str, Tensor]:
        """One update: the model, then each policy, then the running averages.

        The model's loss is the list in ``AgentLosses.model_loss``: consistency, reward,
        termination, value. Policies learn from constants that it returns. ``progress`` is the share
        of the run that is done, for schedules.

        Returns:
            Metrics, 0-d tensors; those of parts that were not updated are missing.
        """
        learning, compiles = self._params.learning, self._params.compute.compile
        if compiles:
            # CUDA graphs may write over what they returned in the last update, but in this one
            # policies need what the model's graph returned.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with_value = self._updates % learning.value_every == 0
        with_policy = self._updates % learning.policy_every == 0

        metrics: dict[str, Tensor]
        loss, metrics, policy_batch = self._model_loss(sequences, with_value, with_policy)
        loss.backward()
        self._check("model" if with_value else "world")
        metrics["optim/grad_norm_model"] = self._step(self._optimiser, self._weights)

        share_done = loss.new_full((), progress)
        for name, policy_loss in self._losses.items() if with_policy else ():
            loss, numbers = self._policy_loss(name, policy_batch, share_done)
            loss.backward()
            # A batch may hold no plan at all, and then nothing to imitate.
            self._check(name, may_be_idle=policy_loss.needs.expert)
            norm = self._step(self._policy_optimisers[name], self._policies[name])
            metrics |= {f"{name}/{key}": number for key, number in numbers.items()}
            metrics |= {f"loss/{name}": loss.detach(), f"optim/grad_norm_{name}": norm}

        self._model.update_targets()
        self._updates += 1
        return _copied(metrics) if compiles else metrics

    def state_dict(self) -> StateDict:
        """State of the optimisers and of adaptive losses."""
        return {
            "updates": self._updates,
            "model": moments_of(self._optimiser),
            "policies": {
                name: moments_of(optimiser) for name, optimiser in self._policy_optimisers.items()
            },
            "losses": {name: dict(loss.state_dict()) for name, loss in self._losses.items()},
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._updates = whole_number(state_dict["updates"])
        load_moments(self._optimiser, state_dict["model"])
        for name, optimiser in self._policy_optimisers.items():
            load_moments(optimiser, state_dict["policies"][name])
        for name, loss in self._losses.items():
            loss.load_state_dict(state_dict["losses"][name])

    def _step(self, optimiser: torch.optim.Optimizer, weights: list[nn.Parameter]) -> Tensor:
        """Cut the gradient, follow it, and say how long it was."""
        longest = self._params.optimiser.max_grad_norm
        norm = nn.utils.clip_grad_norm_(weights, math.inf if longest is None else longest)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return norm

    def _check(self, loss: str, *, may_be_idle: bool = False) -> None:
        if self._params.compute.check_gradients:
            check_gradients(self._model, loss, self._params, may_be_idle=may_be_idle)

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self._params.compute.compile:
            return function
        compiled = partial(torch.compile, function, fullgraph=True, dynamic=False)
        if torch.device(self._params.compute.device).type == "cuda":
            return compiled(mode="reduce-overhead")
        # For dropout, compiled loops draw one number after the other; torch draws many at once.
        return compiled(options={"fallback_random": True})


def _copied(metrics: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers in memory of their own, by one copy of all."""
    return dict(zip(metrics, torch.stack(list(metrics.values())).unbind(), strict=True))


def _adam(
    groups: list[dict[str, Any]], params: LatentParams, eps: float = 1e-8
) -> torch.optim.Optimizer:
    decay = params.optimiser.weight_decay
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    return kind(groups, eps=eps, weight_decay=decay, fused=True)
