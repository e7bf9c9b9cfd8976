"""Convergence of policy losses on a one-step bandit with one best action, and of a wrong loss.

Run ``python tests/benchmarks/bandit_policy_losses.py``; ``--plot FILE`` draws the way there. An
action ``a = tanh(u)`` is worth ``-10 (a - 0.6)^2``, and the policy is a normal distribution of
``u``. Losses get the same: 64 starts, 32 candidates each, 1500 steps of Adam. ``pathwise`` is AWR
with one mistake: it differentiates the log-probability of samples as they are drawn.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_awr.loss import Awr
from empo_awr.params import AwrParams
from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput
from empo_learning.distributions import BoundedNormal
from empo_svg.loss import Svg
from empo_svg.params import SvgParams

BEST = 0.6
STARTS, CANDIDATES = 64, 32
LOG_STD_BOUNDS = (-10.0, 2.0)
NO_ENTROPY = {"coef": 0.0}


class Pathwise(PolicyLoss):
    """AWR as it must not be: the same weights and values, with the gradient of sampling.

    It draws ``u = mu + sigma eps`` and differentiates ``log pi(u)`` through ``u`` as well. There
    ``eps`` is all that is left of how likely ``u`` is, and ``eps`` is constant.
    """

    takes = CandidateBatch
    needs = LossNeeds(min_candidates=2, candidates=CANDIDATES)

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        """Minus the weighted mean of log-probabilities."""
        assert isinstance(distribution, BoundedNormal)
        noise = ((batch.action - distribution.loc) / distribution.scale).detach()
        attached = distribution.loc + distribution.scale * noise
        weights = batch.target.mean(-1).softmax(0)
        return LossOutput(-(weights * distribution.log_prob(attached)).sum(0).mean())


class Policies(nn.Module):
    """One policy per seed, each with a mean and a standard deviation of its own.

    They learn side by side without knowing of each other: features say which one is meant.
    """

    def __init__(self, seeds: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(seeds))
        self.raw = nn.Parameter(torch.full((seeds,), -0.5))

    @property
    def log_std(self) -> Tensor:
        """Log standard deviation of each."""
        return self.raw.clamp(*LOG_STD_BOUNDS)

    def forward(self, features: Tensor) -> BoundedNormal:
        """The distribution of ``u``."""
        return BoundedNormal(features @ self.mean[:, None], features @ self.log_std[:, None])


@dataclass(frozen=True)
class Way:
    """Trajectories of policy parameters, each row a step and each column a seed."""

    mean: Tensor
    log_std: Tensor

    @property
    def value(self) -> Tensor:
        """Expected value of an action, by Gauss-Hermite quadrature."""
        points, weights = (torch.from_numpy(x) for x in np.polynomial.hermite_e.hermegauss(80))
        u = self.mean[..., None] + self.log_std.exp()[..., None] * points
        return (worth(u) * weights).sum(-1) / weights.sum()


def worth(u: Tensor) -> Tensor:
    """The value of action ``tanh(u)``."""
    return -10 * (u.tanh() - BEST).square()


def critic(features: Tensor, u: Tensor) -> Tensor:
    """The same as a critic with one head."""
    return worth(u)


def losses() -> dict[str, PolicyLoss]:
    """The contenders. No entropy is paid for, and values count as they are."""
    temperature = {"rule": "fixed", "value": 1.0}
    awr = AwrParams.model_validate(
        {"normaliser": "none", "temperature": temperature, "entropy": NO_ENTROPY}
    )
    svg = SvgParams.model_validate({"normaliser": "none", "entropy": NO_ENTROPY})
    return {"AWR": Awr(awr), "SVG": Svg(svg), "pathwise": Pathwise()}


def imagined(policies: Policies, starts: int) -> CandidateBatch:
    """So many starts for each policy, with candidates it proposes."""
    with torch.no_grad():
        start = torch.eye(len(policies.mean)).repeat_interleave(starts, 0)
        proposal = policies(start)
        u = proposal.sample((CANDIDATES,))
        weight = torch.ones(len(start))
        return CandidateBatch(start, u, worth(u), proposal.log_prob(u), weight, proposal)


def learned(loss: PolicyLoss, *, seeds: int, steps: int, starts: int = STARTS) -> Way:
    """Trajectories of policies trained with a loss."""
    torch.manual_seed(0)
    policies = Policies(seeds)
    optimiser = torch.optim.Adam(policies.parameters(), lr=0.01)
    means, log_stds = [], []
    for _ in range(steps):
        means.append(policies.mean.detach().clone())
        log_stds.append(policies.log_std.detach())
        batch = imagined(policies, starts)
        output = loss(policies(batch.start), batch, critic if loss.needs.critic else None)
        optimiser.zero_grad()
        torch.autograd.backward(output.loss)
        optimiser.step()
    return Way(torch.stack(means).double(), torch.stack(log_stds).double())


def table_of(ways: dict[str, Way]) -> Table:
    """Table of the final policies of each loss, with the seeds from least to greatest."""
    table = Table("loss", title=f"Bandit with its best action at {BEST}")
    for heading in ("tanh mu", "mu", "log sigma", "E[Q]"):
        table.add_column(heading, justify="right")
    for name, way in ways.items():
        ends = (way.mean.tanh(), way.mean, way.log_std, way.value)
        cells = (end[-1].sort().values.tolist() for end in ends)
        table.add_row(name, *("  ".join(f"{x:.3f}" for x in cell) for cell in cells))
    return table


def draw(ways: dict[str, Way], file: Path) -> None:
    """The most likely action and the expected value against steps, every seed a line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, way), colour in zip(ways.items(), ("C0", "C2", "C3"), strict=True):
        for axes, curves in ((left, way.mean.tanh()), (right, way.value)):
            for seed, curve in enumerate(curves.T):
                axes.plot(curve, color=colour, linewidth=1, label=None if seed else name)
    left.axhline(BEST, color="black", linestyle="--", linewidth=0.8, label="best action")
    left.set(xlabel="step", ylabel="most likely action, tanh μ")
    right.axhline(0, color="black", linestyle="--", linewidth=0.8)
    right.set(xlabel="step", ylabel="expected value, E[Q]")
    left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120)


def main() -> None:
    """Print the table, and draw it if wanted."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    chosen = parser.parse_args()
    ways = {
        name: learned(loss, seeds=chosen.seeds, steps=chosen.steps)
        for name, loss in losses().items()
    }
    Console(width=120).print(table_of(ways))
    if chosen.plot:
        draw(ways, chosen.plot)


if __name__ == "__main__":
    main()
