"""The value network kit passes a small real network and fails each one broken on purpose."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from empo_core.errors import NonFiniteError
from empo_core.protocols import Regression, ValueNetwork
from empo_core.types import Fit, Quantity, ValueQuery, WorldSpec
from empo_testing.value_network import ValueNetworkTests

Runner = Callable[..., set[str]]


class Perceptron(ValueNetwork):
    """A right network: two layers on the row, the time, and who and what is asked about."""

    def __init__(self, spec: WorldSpec, quantity: Quantity) -> None:
        super().__init__()
        self.quantity = quantity
        self._sizes = (len(spec.agents), len(spec.goals))
        self._horizon = spec.horizon or 1
        outputs = 1
        if quantity == "q_r":
            for robot in spec.robots:
                outputs *= spec.num_actions[robot]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.hidden = nn.Linear(spec.state_words + 1 + sum(self._sizes), 16)
            self.output = nn.Linear(16, outputs)

    def features(self, query: ValueQuery) -> Tensor:
        query = query.spread()
        rows = [query.states.float(), query.steps_left[:, None] / self._horizon]
        for index, size in zip((query.human, query.goal), self._sizes, strict=True):
            if index is None:
                rows.append(torch.zeros(len(query.states), size))
            else:
                rows.append(nn.functional.one_hot(index, size).float())
        return torch.cat(rows, dim=1)

    def raw(self, query: ValueQuery) -> Tensor:
        return self.output(torch.tanh(self.hidden(self.features(query))))

    def bounded(self, raw: Tensor) -> Tensor:
        if self.quantity == "v_h_e":
            return torch.sigmoid(raw)
        positive = nn.functional.softplus(raw)
        return positive if self.quantity == "x_h" else -positive

    def forward(self, query: ValueQuery) -> Tensor:
        return self.bounded(self.raw(query))


class MisnamesItself(Perceptron):
    def __init__(self, spec: WorldSpec, quantity: Quantity) -> None:
        super().__init__(spec, quantity)
        self.quantity = "v_r" if quantity != "v_r" else "u_r"


class Squeezes(Perceptron):
    def forward(self, query: ValueQuery) -> Tensor:
        return super().forward(query)[:, 0]


class Rounds(Perceptron):
    def forward(self, query: ValueQuery) -> Tensor:
        return super().forward(query).detach().int()


class StartsUnbounded(Perceptron):
    def bounded(self, raw: Tensor) -> Tensor:
        return raw * 0 + (1.5 if self.quantity == "v_h_e" else 0.0)


class OnlyScales(Perceptron):
    """In bounds as initialised, out of them once trained."""

    def bounded(self, raw: Tensor) -> Tensor:
        middle = {"v_h_e": 0.5, "x_h": 2.0}.get(self.quantity, -2.0)
        return middle + 0.1 * raw


class Detached(Perceptron):
    def forward(self, query: ValueQuery) -> Tensor:
        return super().forward(query).detach()


class HasASpareLayer(Perceptron):
    def __init__(self, spec: WorldSpec, quantity: Quantity) -> None:
        super().__init__(spec, quantity)
        self.spare = nn.Parameter(torch.ones(3))


class Barely(Perceptron):
    """Its parameters hardly matter."""

    def bounded(self, raw: Tensor) -> Tensor:
        return super().bounded(1e-6 * raw)


class ForgetsALayer(Perceptron):
    def state_dict(self, *args: object, **kwargs: object) -> dict[str, Tensor]:
        return {
            name: tensor
            for name, tensor in super().state_dict(*args, **kwargs).items()  # type: ignore[arg-type]
            if not name.startswith("output")
        }

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:  # type: ignore[override]
        super().load_state_dict(state_dict, strict=False)


class SavesItsName(Perceptron):
    def state_dict(self, *args: object, **kwargs: object) -> dict[str, object]:
        return super().state_dict(*args, **kwargs) | {"quantity": self.quantity}  # type: ignore[arg-type]

    def load_state_dict(self, state_dict: dict[str, object]) -> None:  # type: ignore[override]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "quantity"})  # type: ignore[misc]


class NormalisesTheBatch(Perceptron):
    def raw(self, query: ValueQuery) -> Tensor:
        raw = super().raw(query)
        return raw - raw.mean(0) if len(raw) else raw


class NeedsQuestions(Perceptron):
    def forward(self, query: ValueQuery) -> Tensor:
        return torch.cat(
            [super(NeedsQuestions, self).forward(query)[i : i + 1] for i in range(len(query))]
        )


class AnswersPerState(Perceptron):
    """One row per state, whatever is asked about it."""

    def forward(self, query: ValueQuery) -> Tensor:
        count = len(query.states)
        human, goal = (
            None if index is None else index[:count] for index in (query.human, query.goal)
        )
        return super().forward(ValueQuery(query.states, query.steps_left, human, goal))


class MixesUpStates(Perceptron):
    """Takes the questions for sorted by state."""

    def forward(self, query: ValueQuery) -> Tensor:
        if query.state is not None:
            state = query.state.sort().values
            query = ValueQuery(query.states, query.steps_left, query.human, query.goal, state)
        return super().forward(query)


class DropsOut(Perceptron):
    def raw(self, query: ValueQuery) -> Tensor:
        return nn.functional.dropout(super().raw(query), 0.5)


class CountsQuestions(Perceptron):
    def __init__(self, spec: WorldSpec, quantity: Quantity) -> None:
        super().__init__(spec, quantity)
        self.register_buffer("asked", torch.zeros(()))

    def forward(self, query: ValueQuery) -> Tensor:
        self.asked += 1
        return super().forward(query)


class WritesIntoItsInput(Perceptron):
    def forward(self, query: ValueQuery) -> Tensor:
        values = super().forward(query)
        query.steps_left.clamp_(max=1)
        return values


class SignDescent:
    """A right regression of its own: steps of one length along the sign of the gradient."""

    def __init__(self, network: ValueNetwork) -> None:
        self.network, self.steps = network, 0

    def fit(self, query: ValueQuery, target: Tensor, weight: Tensor, *, lr: float) -> Fit:
        parameters = list(self.network.parameters())
        error = torch.where(weight > 0, self.network(query) - target, 0.0)
        loss = (weight * error.square()).sum() / weight.sum()
        self.check(loss)
        gradients = torch.autograd.grad(loss, parameters)
        self.steps += 1
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= lr / self.steps**0.5 * gradient.sign()
        return Fit(loss.detach(), torch.nn.utils.get_total_norm(gradients))

    def check(self, loss: Tensor) -> None:
        if not loss.isfinite():
            raise NonFiniteError(f"the loss is {loss}")

    def default_lr(self, *, sampled: bool) -> float:
        return 0.005 if sampled else 0.01

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.steps = state_dict["steps"]


class FitsItself(Perceptron):
    """A right network with a right regression."""

    method: type = SignDescent

    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression:
        regression: Regression = self.method(self)
        return regression


class HardlyMoves(FitsItself):
    class method(SignDescent):
        def default_lr(self, *, sampled: bool) -> float:
            return 1e-9


class FitsToNan(FitsItself):
    class method(SignDescent):
        def check(self, loss: Tensor) -> None:
            pass


class ForgetsItsSteps(FitsItself):
    class method(SignDescent):
        def load_state_dict(self, state_dict: dict[str, int]) -> None:
            self.steps = 0


FLAWS: list[tuple[type, list[str]]] = [
    (MisnamesItself, ["test_it_fits_the_protocol"]),
    (Squeezes, ["test_there_is_one_row_per_question"]),
    (Rounds, ["test_there_is_one_row_per_question"]),
    (StartsUnbounded, ["test_a_fresh_network_is_within_the_bounds_of_its_quantity"]),
    (OnlyScales, ["test_no_parameters_lead_out_of_the_bounds"]),
    (Detached, ["test_it_has_parameters_and_gradients_reach_them_all"]),
    (HasASpareLayer, ["test_it_has_parameters_and_gradients_reach_them_all"]),
    (Barely, ["test_it_learns"]),
    (ForgetsALayer, ["test_its_state_dict_restores_it"]),
    (SavesItsName, ["test_its_state_dict_restores_it"]),
    (NormalisesTheBatch, ["test_order_and_size_of_the_batch_do_not_matter"]),
    (AnswersPerState, ["test_states_can_be_shared_between_questions"]),
    (MixesUpStates, ["test_states_can_be_shared_between_questions"]),
    (NeedsQuestions, ["test_no_questions_give_no_values"]),
    (HardlyMoves, ["test_its_own_regression_moves_it_towards_targets"]),
    (FitsToNan, ["test_its_own_regression_refuses_targets_that_are_not_finite"]),
    (ForgetsItsSteps, ["test_its_own_regression_goes_on_exactly_from_a_checkpoint"]),
    (DropsOut, ["test_asking_changes_nothing"]),
    (CountsQuestions, ["test_asking_changes_nothing"]),
    (WritesIntoItsInput, ["test_asking_changes_nothing"]),
]


def subclass(make: type) -> type:
    class TestIt(ValueNetworkTests):
        @pytest.fixture
        def network(self, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
            return make(spec, quantity)  # type: ignore[no-any-return]

    return TestIt


@pytest.mark.parametrize("make", [Perceptron, FitsItself])
def test_a_right_network_passes(kit_failures: Runner, make: type) -> None:
    assert kit_failures(subclass(make)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_network_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    assert kit_failures(subclass(make), only=caught_by) == set(caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in vars(ValueNetworkTests) if name.startswith("test_")}
