"""Random network distillation: what a trained network cannot predict yet is new."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from empo_core.protocols import Explorer, Weights
from empo_core.trees import StateDict
from empo_core.types import Scene, WorldSpec
from empo_explorers.expectation import boosted, expected
from empo_explorers.params import RndParams
from empo_learning.finite import check_finite
from empo_learning.optimiser_moments import load_moments, moments_of
from empo_worlds.row_table import RowTable


class Rnd(Explorer):
    """Multiplies probabilities by exp(coefficient * novelty); novelty is learned.

    For robots novelty belongs to states, and a choice has the expected novelty of its
    successors. For a human it belongs to states with an action: there is a prediction per
    action, and training improves only the one of the action that was taken.
    """

    learns = True

    def __init__(self, params: RndParams, spec: WorldSpec, agents: Sequence[int]) -> None:
        """Draw the network to be predicted from a seed, so that every copy has the same."""
        self._params, self._featurize = params, spec.featurizer
        self._of_actions = spec.agents[agents[0]].role == "human"
        self._outputs = spec.num_actions[agents[0]] if self._of_actions else 1
        self._dtype = torch.empty(0, dtype=spec.state_dtype).numpy().dtype
        inputs = self._featurize.shape.flat
        generator = torch.Generator().manual_seed(params.seed)
        self._target = self._mlp(inputs, 2, generator)
        self._predictor = self._mlp(inputs, 3, generator)
        self._optimiser = torch.optim.Adam(
            self._predictor.parameters(), params.lr, weight_decay=params.weight_decay
        )
        # Mean and variance of novelty, and how many training steps they are from.
        self._moments = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)

    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """The policy, tilted towards novel states; see ``empo_core.protocols.Explorer``."""
        if self._of_actions:
            novelty = self.novelty(scene.states)
        elif scene.successors is None:
            return policy  # All choices are made in the same state, which is equally new.
        else:
            novelty = expected(self.novelty(scene.successors.states)[:, 0], scene.successors)
        return boosted(policy, self._params.coefficient * novelty.view(policy.shape))

    @torch.no_grad()
    def novelty(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state output"]:
        """Prediction error per state, or per action in it; 0 is average where normalised."""
        table = RowTable(rows.shape[1], self._dtype)
        number = torch.from_numpy(table.number(rows.numpy())).long()
        error = self._errors(torch.from_numpy(table.rows))[number].double()
        if self._params.normalize and self._moments[2] > 0:
            error = (error - self._moments[0]) / (self._moments[1].sqrt() + 1e-8)
        return error

    def learn(
        self, states: Int[Tensor, "state word"], choice: Int[Tensor, " state"]
    ) -> dict[str, float]:
        """Improve the predictions for some states, or for what was chosen there, by one step.

        Raises:
            NonFiniteError: if the loss or the gradient is not finite; nothing was changed.
        """
        errors = self._errors(states)
        chosen_errors = errors.gather(1, choice.long()[:, None]) if self._of_actions else errors
        loss = chosen_errors.mean()
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        limit = self._params.max_grad_norm
        norm = nn.utils.clip_grad_norm_(
            self._predictor.parameters(), math.inf if limit is None else limit
        )
        check_finite({"rnd": torch.stack([loss.detach(), norm])}, "the loss or gradient")
        self._optimiser.step()
        self._track(chosen_errors.detach().double())
        return {
            "loss": float(loss.detach()),
            "gradient_norm": float(norm),
            "mean": float(self._moments[0]),
            "deviation": math.sqrt(float(self._moments[1])),
        }

    def weights(self) -> dict[str, Tensor]:
        """The predictor, and what novelty is normalised by."""
        predictor = {f"predictor.{k}": v for k, v in self._predictor.state_dict().items()}
        return predictor | {"moments": self._moments}

    def load_weights(self, weights: Weights) -> None:
        """Use what ``weights`` of another copy returned."""
        prefix = "predictor."
        self._predictor.load_state_dict(
            {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        )
        self._moments = weights["moments"].clone()

    def observe(self, scene: Scene, choice: Int[Tensor, " env"]) -> None:
        """Nothing: it learns where experience is learned from."""

    def state_dict(self) -> StateDict:
        """Networks, optimiser and moments."""
        return {
            "weights": {name: tensor.clone() for name, tensor in self.weights().items()},
            "target": {name: t.clone() for name, t in self._target.state_dict().items()},
            "optimiser": moments_of(self._optimiser),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self.load_weights(state_dict["weights"])
        self._target.load_state_dict(state_dict["target"])
        load_moments(self._optimiser, state_dict["optimiser"])

    def _errors(self, rows: Int[Tensor, "state word"]) -> Float[Tensor, "state output"]:
        """Mean squared error of the predictions for each state and output."""
        features = self._featurize(rows).flat()
        with torch.no_grad():
            target = self._target(features)
        error: Tensor = (self._predictor(features) - target).square()
        return error.view(len(rows), self._outputs, -1).mean(2)

    def _track(self, novelty: Tensor) -> None:
        """Move mean and variance towards those of a batch."""
        keep = self._params.decay if self._moments[2] > 0 else 0.0
        mean = keep * self._moments[0] + (1 - keep) * novelty.mean()
        spread = (novelty - mean).square().mean()
        variance = keep * self._moments[1] + (1 - keep) * spread
        self._moments = torch.stack([mean, variance, self._moments[2] + 1])

    def _mlp(self, inputs: int, hidden: int, generator: torch.Generator) -> nn.Sequential:
        """A network with so many hidden layers, drawn without the global generator."""
        params = self._params
        sizes = [inputs, *[params.hidden_dim] * hidden, self._outputs * params.feature_dim]
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(sizes):
            layer = nn.Linear(fan_in, fan_out, device="meta").to_empty(device="cpu")
            bound = 1 / math.sqrt(max(fan_in, 1))
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator)
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])
