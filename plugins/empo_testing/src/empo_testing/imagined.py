"""A small policy, a critic and batches of both kinds, by which policy losses are tested."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import jaxtyping
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal

from empo_core.protocols import PolicyLoss
from empo_core.types import CandidateBatch, LossOutput, RecordedBatch
from empo_learning.distributions import BoundedNormal

Kind = Literal["normal", "bounded"]
"""Distribution of the test policy: ``Independent(Normal)`` or ``BoundedNormal``."""
STARTS, FEATURES, ACTIONS, HEADS = 12, 3, 2, 2
OF_STARTS, OF_CANDIDATES = ("start", "weight"), ("action", "target", "log_prob")
OF_STEPS = ("action", "advantage", "log_prob", "weight")
Batch = RecordedBatch | CandidateBatch


class SteadyNormal(Normal):
    """A normal distribution whose noise depends on its mean alone.

    So a loss that samples gives the same number for the same start, wherever it stands in
    the batch, and its invariances can be tested exactly.
    """

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """The mean plus reproducible noise, differentiable as usual."""
        return steady_sample(self.loc, self.scale, sample_shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """The same without a gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)


class SteadyBounded(BoundedNormal):
    """The same for actions that are bounded."""

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """The mean plus reproducible noise, differentiable as usual."""
        return steady_sample(self.loc, self.scale, sample_shape)


class KitPolicy(nn.Module):
    """A linear policy with normal noise."""

    def __init__(self, kind: Kind = "normal") -> None:
        super().__init__()
        self.kind = kind
        self.mean = nn.Linear(FEATURES, ACTIONS).double()
        self.log_std = nn.Parameter(torch.full((ACTIONS,), -0.5, dtype=torch.float64))
        fill(self)

    def forward(self, features: Tensor) -> Distribution:
        """A distribution over actions."""
        mean = self.mean(features)
        return normal(self.kind, mean, self.log_std.expand_as(mean))


class KitCritic(nn.Module):
    """Values that are highest where the action equals a linear function of the features."""

    def __init__(self) -> None:
        super().__init__()
        self.best = nn.Linear(FEATURES, ACTIONS).double()
        self.offset = nn.Parameter(torch.linspace(-0.1, 0.1, HEADS, dtype=torch.float64))
        fill(self, shift=0.7)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """One value per head."""
        value = -(actions - self.best(features)).square().sum(-1, keepdim=True)
        result: Tensor = value + self.offset
        return result


def normal(kind: Kind, mean: Tensor, log_std: Tensor) -> Distribution:
    """Steady noise around a mean."""
    if kind == "bounded":
        return SteadyBounded(mean, log_std)
    # Checking arguments would ask tensors for values, which no compiled loss may do.
    return Independent(SteadyNormal(mean, log_std.exp(), validate_args=False), 1)


def steady_sample(loc: Tensor, scale: Tensor, sample_shape: Any) -> Tensor:
    """Samples whose noise depends on the mean alone."""
    copies = torch.arange(math.prod(sample_shape)).reshape((*sample_shape, *[1] * loc.dim()))
    noise = torch.sin(1e4 * loc.detach() + 2.4 * copies)
    return (loc + scale * noise).expand((*sample_shape, *loc.shape))


def fill(module: nn.Module, shift: float = 0.0) -> None:
    """Set weights to fixed, irregular numbers, drawing nothing from any generator."""
    with torch.no_grad():
        for layer in module.children():
            for parameter in layer.parameters():
                count = torch.arange(parameter.numel(), dtype=torch.float64)
                parameter.copy_((0.8 * torch.sin(3.1 * count + 1 + shift)).view_as(parameter))


def imagined(
    policy: KitPolicy, critic: KitCritic, *, starts: int, candidates: int, seed: int = 0
) -> CandidateBatch:
    """A batch as a learner would make it, with every third start of several masked out.

    The expert knows what the critic likes best.
    """
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(starts, FEATURES, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        proposal = policy(start)
        noise = torch.randn(starts, candidates, ACTIONS, generator=generator).double()
        action = proposal.mean + proposal.stddev * noise.transpose(0, 1)
        log_prob = proposal.log_prob(action)
        target = critic(start.expand(candidates, -1, -1), action)
        best = critic.best(start)
    weight = 0.5 + torch.rand(starts, generator=generator, dtype=torch.float64)
    weight[2::3] = 0
    expert = normal(policy.kind, best, torch.full_like(best, -1.0))
    return CandidateBatch(start, action, target, log_prob, weight, proposal, expert)


@dataclass(frozen=True)
class Case:
    """A batch, and the features of its steps or starts, at which the policy is asked."""

    features: Tensor
    batch: Batch


def case(
    takes: type[Batch],
    policy: KitPolicy,
    critic: KitCritic,
    *,
    starts: int,
    candidates: int,
    seed: int = 0,
) -> Case:
    """A batch of either type; recorded actions are first candidates."""
    batch = imagined(policy, critic, starts=starts, candidates=candidates, seed=seed)
    if takes is CandidateBatch:
        return Case(batch.start, batch)
    advantage = batch.target.mean(-1) - batch.target.mean((0, 2))
    weight = batch.weight / batch.weight.mean()
    return Case(
        batch.start, RecordedBatch(batch.action[0], advantage[0], batch.log_prob[0], weight)
    )


def tensors(batch: Batch) -> dict[str, Tensor]:
    """The tensors of a batch by name, but for its progress."""
    names = OF_STARTS + OF_CANDIDATES if isinstance(batch, CandidateBatch) else OF_STEPS
    return {name: getattr(batch, name) for name in names}


def changed_starts(item: Case, kind: Kind, change: Callable[[Tensor], Tensor]) -> Case:
    """The case after a change of all that belongs to steps or starts, which come first in it."""
    changed = {}
    for name, tensor in tensors(item.batch).items():
        if name in OF_CANDIDATES and isinstance(item.batch, CandidateBatch):
            changed[name] = change(tensor.transpose(0, 1)).transpose(0, 1)
        else:
            changed[name] = change(tensor)
    batch = replace(item.batch, **changed)  # type: ignore[arg-type]
    if isinstance(batch, CandidateBatch):

        def turned(distribution: Distribution | None) -> Distribution | None:
            if distribution is None:
                return None
            return normal(kind, change(distribution.mean), change(distribution.stddev.log()))

        batch = replace(batch, proposal=turned(batch.proposal), expert=turned(batch.expert))
    return Case(change(item.features), batch)


def only_needed(loss: PolicyLoss, batch: Batch) -> Batch:
    """The batch without the distributions that the loss does not need."""
    if isinstance(batch, RecordedBatch):
        return batch
    return replace(
        batch,
        proposal=batch.proposal if loss.needs.proposal else None,
        expert=batch.expert if loss.needs.expert else None,
    )


def slopes(output: LossOutput, policy: KitPolicy) -> list[Tensor]:
    """The gradient of an output by each parameter of the policy, 0 where unused."""
    assert output.loss.requires_grad, "the loss is detached from the policy"
    parameters = list(policy.parameters())
    return list(torch.autograd.grad(output.loss, parameters, materialize_grads=True))


@dataclass(frozen=True)
class Trial:
    """A loss, and the policy, critic and batch that it is tried on."""

    loss: PolicyLoss
    policy: KitPolicy
    critic: KitCritic
    case: Case

    def output(self, item: Case | None = None) -> LossOutput:
        """The loss with what it needs and nothing else; global chance is the same every time."""
        torch.manual_seed(0)
        item = self.case if item is None else item
        batch = only_needed(self.loss, item.batch)
        critic = self.critic if self.loss.needs.critic else None
        return self.loss(self.policy(item.features), batch, critic)

    def gradients(self, item: Case | None = None) -> list[Tensor]:
        """The gradient of the loss by each parameter of the policy, 0 where unused."""
        return slopes(self.output(item), self.policy)

    def assert_same_effect(self, other: Case) -> None:
        """Check that another batch gives the same loss and gradient."""
        torch.testing.assert_close(self.output().loss, self.output(other).loss)
        for left, right in zip(self.gradients(), self.gradients(other), strict=True):
            torch.testing.assert_close(left, right)


@contextlib.contextmanager
def compilable() -> Iterator[None]:
    """Let nothing that tests add to the code come into a compiled graph: checks of shapes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "jaxtyping_disable", True)
        # Objects of these are made inside of graphs, where not even a check that is off can be.
        for kind in (
            CandidateBatch,
            RecordedBatch,
            LossOutput,
            BoundedNormal,
            SteadyNormal,
            SteadyBounded,
        ):
            for name, member in [*vars(kind).items()]:
                if inspect.isfunction(member):
                    patch.setattr(kind, name, inspect.unwrap(member))
                elif isinstance(member, property) and member.fget is not None:
                    patch.setattr(kind, name, property(inspect.unwrap(member.fget)))
        torch.compiler.reset()
        yield
    torch.compiler.reset()
