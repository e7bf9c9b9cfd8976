"""Conformance kit of value networks: stay within bounds, learn, be restorable."""

from __future__ import annotations

import copy
from typing import get_args

import pytest
import torch
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.protocols import Regression, ValueNetwork, WorldModel
from empo_core.types import Fit, Quantity, ValueQuery, WorldSpec
from empo_testing.exploration import reachable_states, stored
from empo_testing.worlds import TinyWorld

QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


class ValueNetworkTests:
    """Subclass this in your plugin's tests and override ``network``.

    Everything runs once per quantity. A plugin for fewer quantities overrides ``quantity``
    with fewer params; one that needs a special world overrides ``world``.
    """

    @pytest.fixture
    def world(self) -> WorldModel:
        """The world whose states are valued."""
        return TinyWorld()

    @pytest.fixture
    def spec(self, world: WorldModel) -> WorldSpec:
        """The spec the network is made for."""
        return world.spec

    @pytest.fixture(params=QUANTITIES)
    def quantity(self, request: pytest.FixtureRequest) -> Quantity:
        """The quantity that the network estimates."""
        quantity: Quantity = request.param
        return quantity

    @pytest.fixture
    def network(self, spec: WorldSpec, quantity: Quantity) -> ValueNetwork:
        """A fresh network for ``quantity`` in the world ``spec`` describes."""
        raise NotImplementedError("override the fixture 'network'")

    @pytest.fixture
    def query(self, world: WorldModel, quantity: Quantity) -> ValueQuery:
        """Distinct questions of the network's kind."""
        return every_question(world, quantity)

    def test_it_fits_the_protocol(self, network: ValueNetwork, quantity: Quantity) -> None:
        assert isinstance(network, ValueNetwork)
        assert network.quantity == quantity

    def test_there_is_one_row_per_question(
        self, network: ValueNetwork, spec: WorldSpec, quantity: Quantity, query: ValueQuery
    ) -> None:
        outputs = 1
        if quantity == "q_r":
            for robot in spec.robots:
                outputs *= spec.num_actions[robot]
        values = network(query)
        assert values.shape == (len(query.states), outputs), (
            f"{quantity} of {len(query.states)} questions has {outputs} outputs each"
        )
        assert values.is_floating_point()

    def test_a_fresh_network_is_within_the_bounds_of_its_quantity(
        self, network: ValueNetwork, quantity: Quantity, query: ValueQuery
    ) -> None:
        values = network(query).detach()
        low, high = float(values.min()), float(values.max())
        assert bool(values.isfinite().all()), "some values are not finite"
        if quantity == "v_h_e":
            assert 0 <= low <= high <= 1, f"v_h_e must be in [0, 1]; from {low} to {high}"
        elif quantity == "x_h":
            assert low > 0, f"x_h must be above 0; from {low} to {high}"
        else:
            assert high < 0, f"{quantity} must be below 0; from {low} to {high}"

    def test_no_parameters_lead_out_of_the_bounds(
        self, network: ValueNetwork, quantity: Quantity, query: ValueQuery
    ) -> None:
        for seed in range(5):
            disturb(network, scale=3.0, seed=seed)
            values = network(query).detach()
            assert not bool(values.isnan().any())
            # Extreme parameters may round to the bound itself.
            low, high = {"v_h_e": (0.0, 1.0), "x_h": (0.0, float("inf"))}.get(
                quantity, (-float("inf"), 0.0)
            )
            assert low <= float(values.min()) <= float(values.max()) <= high

    def test_it_has_parameters_and_gradients_reach_them_all(
        self, network: ValueNetwork, query: ValueQuery
    ) -> None:
        disturb(network, scale=0.1, seed=0)
        parameters = [p for p in network.parameters() if p.requires_grad]
        assert parameters, "nothing can be trained"
        values = network(query)
        assert values.requires_grad, "the values are detached from the parameters"
        gradients = torch.autograd.grad(values.sum(), parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            assert gradient is not None, f"a {list(parameter.shape)} parameter is never used"
            assert bool(gradient.isfinite().all())
        assert any(bool((gradient != 0).any()) for gradient in gradients)

    def test_it_learns(self, network: ValueNetwork, quantity: Quantity, query: ValueQuery) -> None:
        target, _ = exercise(network, quantity, query)
        optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
        errors = []
        for _ in range(60):
            error = (network(query) - target).square().mean()
            errors.append(error.item())
            optimiser.zero_grad()
            torch.autograd.backward(error)
            optimiser.step()
        assert errors[-1] < 0.9 * errors[0], f"the error went from {errors[0]} to {errors[-1]}"

    def test_its_state_dict_restores_it(self, network: ValueNetwork, query: ValueQuery) -> None:
        before = network(query).detach().clone()
        state = network.state_dict()
        assert state
        for name, tensor in state.items():
            assert isinstance(tensor, Tensor), f"{name} is no tensor, so it cannot be stored"
        state = copy.deepcopy(dict(state))
        disturb(network, scale=0.5, seed=0)
        assert not torch.equal(network(query).detach(), before), "parameters have no effect"
        network.load_state_dict(state)
        assert torch.equal(network(query).detach(), before)

    def test_order_and_size_of_the_batch_do_not_matter(
        self, network: ValueNetwork, query: ValueQuery
    ) -> None:
        disturb(network, scale=0.3, seed=0)
        together = network(query).detach()
        count = len(query.states)
        order = torch.arange(count).flip(0).repeat(2)
        assert_equal_up_to_rounding(network(rows_of(query, order)).detach(), together[order])
        alone = [network(rows_of(query, torch.tensor([row]))).detach() for row in range(count)]
        assert_equal_up_to_rounding(torch.cat(alone), together)

    def test_states_can_be_shared_between_questions(
        self, network: ValueNetwork, world: WorldModel, quantity: Quantity
    ) -> None:
        disturb(network, scale=0.3, seed=0)
        shared = questions_sharing_states(world, quantity)
        separate = network(shared.spread()).detach()
        values = network(shared).detach()
        assert values.shape == separate.shape, "one row per question, not per state"
        assert_equal_up_to_rounding(values, separate)
        # What grows with the questions it is asked has parameters for all of them only now.
        disturb(network, scale=0.3, seed=1)
        assert_equal_up_to_rounding(network(shared).detach(), network(shared.spread()).detach())

    def test_no_questions_give_no_values(self, network: ValueNetwork, query: ValueQuery) -> None:
        nothing = network(rows_of(query, torch.zeros(0, dtype=torch.int64)))
        assert nothing.shape == (0, network(query).shape[1])

    def test_its_own_regression_moves_it_towards_targets(
        self, network: ValueNetwork, quantity: Quantity, query: ValueQuery
    ) -> None:
        regression = own_regression(network)
        target, weight = exercise(network, quantity, query)
        # A target of no weight must not be read.
        weight[0], target[0] = 0.0, float("nan")
        lr = regression.default_lr(sampled=False)
        assert lr > 0, f"the default learning rate is {lr}"
        errors = []
        for _ in range(60):
            errors.append((network(query) - target)[1:].detach().square().mean().item())
            fit = regression.fit(query, target, weight, lr=lr)
            assert isinstance(fit, Fit), f"fit returns a {type(fit).__name__}, not a Fit"
            assert bool(fit.loss.isfinite() and fit.gradient_norm.isfinite()), f"{fit}"
        assert errors[-1] < 0.9 * errors[0], f"the error went from {errors[0]} to {errors[-1]}"

    def test_its_own_regression_refuses_targets_that_are_not_finite(
        self, network: ValueNetwork, quantity: Quantity, query: ValueQuery
    ) -> None:
        regression = own_regression(network)
        target, weight = exercise(network, quantity, query)
        before = network(query).detach().clone()
        with pytest.raises(NonFiniteError):
            regression.fit(query, torch.full_like(target, float("nan")), weight, lr=0.1)
        assert torch.equal(network(query).detach(), before), "the network was changed all the same"

    def test_its_own_regression_goes_on_exactly_from_a_checkpoint(
        self, network: ValueNetwork, quantity: Quantity, query: ValueQuery
    ) -> None:
        regression = own_regression(network)
        target, weight = exercise(network, quantity, query)

        def fit_twice() -> Tensor:
            torch.manual_seed(0)  # Dropout draws from the global generator.
            for _ in range(2):
                regression.fit(query, target, weight, lr=regression.default_lr(sampled=True))
            return network(query).detach().clone()

        fit_twice()
        weights = copy.deepcopy(dict(network.state_dict()))
        checkpoint = stored(regression.state_dict())
        expected = fit_twice()
        network.load_state_dict(weights)
        regression.load_state_dict(checkpoint)
        assert torch.equal(fit_twice(), expected), "the regression goes on in another way"

    def test_asking_changes_nothing(
        self, network: ValueNetwork, world: WorldModel, quantity: Quantity, query: ValueQuery
    ) -> None:
        state = copy.deepcopy(dict(network.state_dict()))
        first = network(query).detach().clone()
        assert torch.equal(network(query).detach(), first)
        assert all(
            torch.equal(tensor, state[name]) for name, tensor in network.state_dict().items()
        )
        fresh = every_question(world, quantity)
        for name in ("states", "steps_left", "human", "goal"):
            argument, expected = getattr(query, name), getattr(fresh, name)
            assert argument is expected is None or torch.equal(argument, expected)


def own_regression(network: ValueNetwork) -> Regression:
    """The network's regression; where it has none there is nothing to check."""
    regression = network.regression(weight_decay=0.0, max_grad_norm=None)
    if regression is None:
        pytest.skip("gradient descent fits the network")
    assert isinstance(regression, Regression)
    return regression


def exercise(network: ValueNetwork, quantity: Quantity, query: ValueQuery) -> tuple[Tensor, Tensor]:
    """Targets within the bounds of the quantity, and weights."""
    inside = {"v_h_e": (0.2, 0.8), "x_h": (0.5, 2.0)}.get(quantity, (-2.0, -0.5))
    shape = network(query).shape
    target = torch.linspace(*inside, steps=shape.numel()).reshape(shape)
    return target, torch.ones(shape)


def every_question(world: WorldModel, quantity: Quantity) -> ValueQuery:
    """Some states at some times, for each human or goal where the quantity has one."""
    states = reachable_states(world, limit=8)
    spec = world.spec
    human = goal = None
    if quantity == "v_h_e":
        goals = torch.arange(len(spec.goals))
        humans = torch.tensor([g.human for g in spec.goals])
        goal, human = goals.repeat(len(states)), humans.repeat(len(states))
        states = states.repeat_interleave(len(goals), 0)
    elif quantity == "x_h":
        human = torch.tensor(spec.humans).repeat(len(states))
        states = states.repeat_interleave(len(spec.humans), 0)
    steps_left = torch.arange(len(states)) % (spec.horizon or 3) + 1
    return ValueQuery(states, steps_left, human, goal)


def questions_sharing_states(world: WorldModel, quantity: Quantity) -> ValueQuery:
    """As many questions about each state as there are goals or humans, else two; shuffled."""
    spec = world.spec
    states = reachable_states(world, limit=8)
    count = {"v_h_e": len(spec.goals), "x_h": len(spec.humans)}.get(quantity, 2)
    order = torch.randperm(len(states) * count, generator=torch.Generator().manual_seed(0))
    which = order % count
    human = goal = None
    if quantity == "v_h_e":
        goal, human = which, torch.tensor([g.human for g in spec.goals])[which]
    elif quantity == "x_h":
        human = torch.tensor(spec.humans)[which]
    steps_left = torch.arange(len(states)) % (spec.horizon or 3) + 1
    return ValueQuery(states, steps_left, human, goal, order // count)


def rows_of(query: ValueQuery, rows: Tensor) -> ValueQuery:
    """Some of the questions, in the given order."""
    return ValueQuery(
        query.states[rows],
        query.steps_left[rows],
        None if query.human is None else query.human[rows],
        None if query.goal is None else query.goal[rows],
    )


def disturb(network: ValueNetwork, *, scale: float, seed: int) -> None:
    """Add noise to every parameter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(scale * noise.to(parameter))


def assert_equal_up_to_rounding(actual: Tensor, expected: Tensor) -> None:
    """Products of matrices round as their sizes have it, and an exponential magnifies that."""
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-5)
