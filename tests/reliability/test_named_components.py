"""The component that a config names is the one that is called, in every update of each learner."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from small_runs import CONFIGS
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_core import Component, Config
from empo_core.config import installed
from empo_core.config.files import load_config
from empo_core.experiment import Experiment
from empo_core.plugins.hookspecs import Kind
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_core.protocols import Critic, PolicyLoss, PolicyNetwork, ValueNetwork
from empo_core.protocols.environments import ObservationSpec
from empo_core.types import (
    CandidateBatch,
    LossOutput,
    Quantity,
    RecordedBatch,
    Reduction,
    Segments,
    ValueQuery,
    WorldSpec,
)

COLUMNS = 3
"""Numbers beside a state row that tell the network what it is asked about."""


class Reduce:
    """Sums and means of segments, and how many there were."""

    items: ClassVar[list[int]] = []

    def __init__(self, params: Config) -> None: ...

    def __call__(
        self,
        values: Tensor,
        segments: Segments,
        *,
        reduction: Reduction = "sum",
        weight: Tensor | None = None,
    ) -> Tensor:
        self.items.append(len(values))
        factor = torch.ones(len(values), dtype=values.dtype) if weight is None else weight
        factor = factor.to(values).view(-1, *[1] * (values.dim() - 1))
        empty = values.new_zeros(segments.num_segments, *values.shape[1:])
        total = empty.index_add(0, segments.index, values * factor)
        if reduction == "mean":
            norm = empty.index_add(0, segments.index, factor.expand_as(values))
            total = total / torch.where(norm == 0, 1, norm)
        return total


class Linear(ValueNetwork):
    """A linear function of state rows, and how often each quantity learned."""

    fits: ClassVar[list[Quantity]] = []

    def __init__(self, params: Config, spec: WorldSpec, quantity: Quantity) -> None:
        super().__init__()
        self.quantity = quantity
        outputs = spec.num_robot_actions if quantity == "q_r" else 1
        self.layer = nn.Linear(spec.state_words + COLUMNS, outputs)

    def forward(self, query: ValueQuery) -> Tensor:
        query = query.spread()
        if torch.is_grad_enabled():
            self.fits.append(self.quantity)
        none = torch.zeros(len(query), dtype=torch.int64)
        asked_about = (query.steps_left, query.human, query.goal)
        columns = [none if column is None else column for column in asked_about]
        raw = self.layer(torch.cat([query.states, torch.stack(columns, 1)], 1).float() / 10)
        if self.quantity == "v_h_e":
            return torch.sigmoid(raw)
        return -1 - nn.functional.softplus(raw)


class Reinforce(PolicyLoss):
    """The policy gradient of steps that were taken, and how often it was asked for."""

    takes = RecordedBatch
    steps: ClassVar[list[int]] = []

    def __init__(self, params: Config) -> None:
        super().__init__()

    def forward(
        self, distribution: Distribution, batch: RecordedBatch, critic: Critic | None = None
    ) -> LossOutput:
        self.steps.append(len(batch.weight))
        gain = batch.advantage * distribution.log_prob(batch.action)
        return LossOutput(-(batch.weight * gain).mean())


class Imitate(PolicyLoss):
    """Candidates imitated by their values, and how often."""

    takes = CandidateBatch
    steps: ClassVar[list[int]] = []

    def __init__(self, params: Config) -> None:
        super().__init__()

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        self.steps.append(len(batch.weight))
        share = batch.target.mean(-1).softmax(0)
        return LossOutput(-(batch.weight * share * distribution.log_prob(batch.action)).mean())


class Rows(PolicyNetwork):
    """One dense layer, and how many rows it read while acting and while learning."""

    acted: ClassVar[list[int]] = []
    learned: ClassVar[list[int]] = []
    features = 4

    def __init__(self, params: Config, observations: ObservationSpec) -> None:
        super().__init__()
        self.layer = nn.Linear(observations.words, self.features)

    def forward(self, observation: Tensor) -> Tensor:
        (self.learned if torch.is_grad_enabled() else self.acted).append(len(observation))
        return torch.tanh(self.layer(observation))


PARTS: list[tuple[Kind, str, str]] = [
    ("aggregator", "reduce", "Reduce"),
    ("value_network", "linear", "Linear"),
    ("policy_loss", "reinforce", "Reinforce"),
    ("policy_loss", "imitate", "Imitate"),
    ("policy_network", "rows", "Rows"),
]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The installed components, and those of this module, which have not been called yet."""
    counts: list[list[Any]] = [
        Reduce.items, Linear.fits, Reinforce.steps, Imitate.steps, Rows.acted, Rows.learned,
    ]  # fmt: skip
    for count in counts:
        count.clear()
    mine = Provider("empo-mine", "1", "mine")
    components = [
        Component(kind=kind, name=name, params=Config, target=f"{__name__}:{part}", api=1)
        for kind, name, part in PARTS
    ]
    registry = Registry([*installed().offers, *(Offer(mine, part) for part in components)])
    monkeypatch.setattr("empo_core.components.installed", lambda: registry)
    return registry


def metrics_of(
    learner: str, registry: Registry, folder: Path, **params: Any
) -> list[dict[str, Any]]:
    """The metrics that a run of some of this module's components logged."""
    algorithm = CONFIGS[learner]["algorithm"]
    config = {
        **CONFIGS[learner],
        "algorithm": {**algorithm, "params": {**algorithm["params"], **params}},
        "trackers": ["jsonl"],
        "runs": str(folder / "runs"),
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    made = load_config(folder / "config.yaml", registry=registry)
    directory = Experiment.start(made, registry=registry).directory
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_phase2_fits_its_networks_to_what_its_aggregator_adds_up(
    registry: Registry, tmp_path: Path
) -> None:
    params = {"values": {"q_r": "linear", "v_h_e": "linear"}, "total_steps": 12}
    rows = metrics_of("phase2", registry, tmp_path, aggregator="reduce", **params)
    fits = Counter(Linear.fits)
    # One line of metrics per training step; Q_r is not learned in the first ones.
    assert fits == {q: sum(f"loss/{q}" in row for row in rows) for q in ("q_r", "v_h_e")}
    assert fits["v_h_e"] == rows[-1]["step"] == len(rows)
    (successors,) = {row["optim/batch_successors"] for row in rows}
    assert Reduce.items.count(successors) >= fits.total()


def test_rollout_asks_its_loss_in_every_step_of_the_optimiser(
    registry: Registry, tmp_path: Path
) -> None:
    rows = metrics_of("rollout", registry, tmp_path, losses=[{"loss": "reinforce"}])
    assert len(Reinforce.steps) == rows[-1]["optim/steps"] > 0
    assert sum(Reinforce.steps) % rows[-1]["step"] == 0  # All steps, as often as there are epochs.


@pytest.mark.parametrize(
    ("policy", "trunks"),
    [
        ({"network": "rows", "critic": "own"}, 2),
        ({"network": "rows", "critic": "shared"}, 1),
        ({"network": {"name": "lstm", "params": {"trunk": "rows"}}, "critic": "shared"}, 1),
    ],
)
def test_rollout_acts_and_learns_by_its_network_alone(
    registry: Registry, tmp_path: Path, policy: dict[str, Any], trunks: int
) -> None:
    rows = metrics_of("rollout", registry, tmp_path, policy=policy)
    params = CONFIGS["rollout"]["algorithm"]["params"]
    size = params["update"]["minibatch_size"]
    assert sum(Rows.learned) == trunks * size * rows[-1]["optim/steps"] > 0
    tried, *acted = Rows.acted  # First the network is tried with one row.
    assert tried == 1
    assert sum(acted) >= trunks * rows[-1]["step"]
    assert sum(acted) % trunks == 0


def test_latent_asks_its_loss_in_every_update(registry: Registry, tmp_path: Path) -> None:
    rows = metrics_of("latent", registry, tmp_path, policy_loss="imitate")
    assert len(Imitate.steps) == rows[-1]["time/updates"] > 0
