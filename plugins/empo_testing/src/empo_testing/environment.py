"""Conformance kit of vectorised environments, however they step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from empo_core.protocols.environments import (
    Action,
    Environment,
    EnvSpec,
    TimeStep,
    VectorEnv,
    VectorLayout,
)
from empo_testing.exploration import stored

SEED = 5
MakeVector = Callable[[], VectorEnv]


def snapshot(arrival: TimeStep) -> TimeStep:
    """A copy that the environments cannot write to."""
    arrays: dict[str, Any] = {
        field.name: value.copy()
        for field in fields(arrival)
        if isinstance(value := getattr(arrival, field.name), np.ndarray)
    }
    return replace(arrival, **arrays)


def differences(left: TimeStep, right: TimeStep) -> list[str]:
    """Names of the fields that differ."""
    pairs = {
        field.name: (getattr(left, field.name), getattr(right, field.name))
        for field in fields(left)
    }
    return [name for name, (a, b) in pairs.items() if not np.array_equal(a, b)]


def random_action(env_spec: EnvSpec, arrival: TimeStep, generator: np.random.Generator) -> Action:
    """Allowed actions for the agents that act, and nonsense for the others."""
    agents, actions = env_spec.block_agents, env_spec.actions
    if not actions.is_discrete:
        low = np.maximum(actions.low, -3.0)
        high = np.minimum(actions.high, 3.0)
        numbers = generator.uniform(low, high, (agents, actions.size)).astype(np.float32)
        numbers[~arrival.acts] = np.nan
        return numbers
    options = np.empty((agents, actions.size), np.int64)
    first = 0
    for place, count in enumerate(actions.choices):
        score = generator.random((agents, count))
        if arrival.mask is not None:
            score -= ~arrival.mask[:, first : first + count]
        options[:, place] = score.argmax(1)
        first += count
    options[~arrival.acts] = -1
    return options


class Player:
    """Answers arrivals at random, and keeps copies of them, block by block.

    What it does depends on the block and on how often that arrived, not on the order of blocks.
    """

    def __init__(self, vector: VectorEnv, seed: int = SEED) -> None:
        """Play with a vector that has started."""
        self.vector = vector
        blocks = range(vector.spec.num_blocks)
        self.log: list[list[TimeStep]] = [[] for _ in blocks]
        self._generators = [np.random.default_rng((seed, block)) for block in blocks]

    def recv(self) -> TimeStep:
        """The next arrival, kept."""
        arrival = snapshot(self.vector.recv())
        self.log[arrival.block].append(arrival)
        return arrival

    def answer(self, arrival: TimeStep) -> None:
        """Send actions."""
        generator = self._generators[arrival.block]
        action = random_action(self.vector.spec, arrival, generator)
        self.vector.send(arrival.block, action)

    def play(self, rounds: int) -> None:
        """Receive each block this often, and answer each time."""
        for _ in range(rounds * self.vector.spec.num_blocks):
            self.answer(self.recv())

    def hold(self) -> list[TimeStep]:
        """Receive each block once, without an answer."""
        return [self.recv() for _ in range(self.vector.spec.num_blocks)]

    def succeed(self, vector: VectorEnv) -> Player:
        """A player that goes on in another vector as this one would."""
        heir = Player(vector)
        heir._generators = copy.deepcopy(self._generators)
        return heir


def _assert_same(ones: list[list[TimeStep]], others: list[list[TimeStep]]) -> None:
    assert [len(log) for log in ones] == [len(log) for log in others]
    for block, (left, right) in enumerate(zip(ones, others, strict=True)):
        for number, (a, b) in enumerate(zip(left, right, strict=True)):
            assert not differences(a, b), f"arrival {number} of block {block}"


class VectorEnvTests:
    """Subclass this in your plugin's tests and override ``make_vector``.

    Make it of two environments or more, and of two blocks or more where it can have them.
    """

    rounds = 60
    """Number of arrivals of each block; some episodes must end within."""
    exact = True
    """True if ``load_state_dict`` can lead back exactly to where a vector stood."""

    @pytest.fixture
    def make_vector(self) -> MakeVector:
        """Makes a vector with ``order`` rotation; each call a new one of equal environments."""
        raise NotImplementedError("override the fixture 'make_vector'")

    @pytest.fixture
    def new_vector(self, request: pytest.FixtureRequest, make_vector: MakeVector) -> MakeVector:
        """The same, closed in the end."""

        def new() -> VectorEnv:
            vector = make_vector()
            request.addfinalizer(vector.close)
            return vector

        return new

    @pytest.fixture
    def vector(self, new_vector: MakeVector) -> VectorEnv:
        """A vector that has started."""
        vector = new_vector()
        vector.start(SEED)
        return vector

    def test_it_fits_the_protocol(self, new_vector: MakeVector) -> None:
        assert isinstance(new_vector(), VectorEnv)

    def test_its_interface_is_consistent(self, new_vector: MakeVector) -> None:
        env_spec = new_vector().spec
        assert env_spec.num_agents % env_spec.num_blocks == 0
        assert len(set(env_spec.agents)) == len(env_spec.agents) > 0
        assert env_spec.observations.words > 0
        assert env_spec.actions.size > 0
        if env_spec.observations.grid is not None:
            assert np.prod(env_spec.observations.grid) <= env_spec.observations.words
        if env_spec.actions.is_discrete:
            assert not env_spec.actions.low
            assert min(env_spec.actions.choices) > 0
        else:
            assert len(env_spec.actions.low) == len(env_spec.actions.high)

    def test_blocks_arrive_in_rotation(self, vector: VectorEnv) -> None:
        player, blocks = Player(vector), vector.spec.num_blocks
        for turn in range(3 * blocks):
            arrival = player.recv()
            assert arrival.block == turn % blocks
            player.answer(arrival)

    def test_blocks_arrive_in_the_order_in_which_they_were_sent(self, vector: VectorEnv) -> None:
        player = Player(vector)
        held = player.hold()
        for _ in range(2):
            held.reverse()
            for arrival in held:
                player.answer(arrival)
            blocks = [arrival.block for arrival in held]
            held = player.hold()
            assert [arrival.block for arrival in held] == blocks

    def test_blocks_that_are_answered_together_arrive_once_each(self, vector: VectorEnv) -> None:
        player, blocks = Player(vector), vector.spec.num_blocks
        for _ in range(3):
            held = player.hold()
            assert [arrival.block for arrival in held] == list(range(blocks))
            for arrival in held:
                player.answer(arrival)

    def test_a_block_that_has_not_arrived_cannot_be_sent(self, vector: VectorEnv) -> None:
        env_spec = vector.spec
        player = Player(vector)
        first = player.recv()
        action = random_action(env_spec, first, np.random.default_rng(0))
        for block in (-1, env_spec.num_blocks, *range(1, env_spec.num_blocks)):
            with pytest.raises(ValueError, match=str(block)):
                vector.send(block, action)
        player.answer(first)
        with pytest.raises(ValueError, match="0"):
            vector.send(0, action)
        player.play(2)

    def test_there_is_nothing_to_receive_while_every_block_waits_for_send(
        self, vector: VectorEnv
    ) -> None:
        player = Player(vector)
        held = player.hold()
        with pytest.raises(ValueError, match="send"):
            vector.recv()
        for arrival in held:
            player.answer(arrival)
        player.play(1)

    def test_actions_of_a_wrong_shape_or_dtype_are_refused(self, vector: VectorEnv) -> None:
        player = Player(vector)
        arrival = player.recv()
        action = random_action(vector.spec, arrival, np.random.default_rng(0))
        wrong = [action[:-1], action[:, :0], action[:, 0], action.astype(np.int8)]
        wrong.append(action.astype(np.float32 if action.dtype == np.int64 else np.int64))
        for bad in wrong:
            # A TypeError where shapes are checked at run time.
            with pytest.raises((ValueError, TypeError), match="action"):
                vector.send(arrival.block, bad)
        player.answer(arrival)
        player.play(1)

    def test_arrivals_have_the_shapes_and_dtypes_of_the_interface(self, vector: VectorEnv) -> None:
        env_spec, player = vector.spec, Player(vector)
        player.play(self.rounds)
        agents, observations = env_spec.block_agents, env_spec.observations
        words = (agents, observations.words)
        for arrival in (arrival for log in player.log for arrival in log):
            assert arrival.observation.shape == words
            assert arrival.observation.dtype == observations.dtype
            assert arrival.reward.shape == (agents,)
            assert arrival.reward.dtype == np.float32
            for name in ("terminated", "truncated", "starts", "acts"):
                array = getattr(arrival, name)
                assert (name, array.shape, array.dtype) == (name, (agents,), np.bool_)
            assert arrival.final_observation.shape == (len(arrival.final_row), words[1])
            assert arrival.final_observation.dtype == observations.dtype
            assert np.isfinite(arrival.observation).all()
            assert np.isfinite(arrival.final_observation).all()
            assert np.isfinite(arrival.reward).all()
            self._check_mask(env_spec, arrival)
            if arrival.reason is not None:
                assert arrival.reason.shape == (agents,)
                assert arrival.reason.min() >= -1
                assert arrival.reason.max() < len(env_spec.reasons)

    def _check_mask(self, env_spec: EnvSpec, arrival: TimeStep) -> None:
        if not env_spec.masks:
            assert arrival.mask is None
            return
        assert arrival.mask is not None
        choices = env_spec.actions.choices
        assert arrival.mask.shape == (env_spec.block_agents, sum(choices))
        assert arrival.mask.dtype == np.bool_
        for options in np.split(arrival.mask, np.cumsum(choices)[:-1], axis=1):
            assert (options.sum(1) > 0)[arrival.acts].all()

    def test_the_first_arrivals_begin_episodes_and_bring_no_outcome(
        self, vector: VectorEnv
    ) -> None:
        for arrival in Player(vector).hold():
            assert arrival.starts[arrival.acts].all()
            assert not arrival.reward.any()
            assert not arrival.terminated.any()
            assert not arrival.truncated.any()
            assert not len(arrival.final_row)

    def test_episodes_end_and_begin_where_the_flags_say_so(self, vector: VectorEnv) -> None:
        player = Player(vector)
        player.play(self.rounds)
        ends = 0
        for log in player.log:
            acted = np.zeros(vector.spec.block_agents, bool)
            ended = np.ones(vector.spec.block_agents, bool)
            for number, arrival in enumerate(log):
                over = (arrival.terminated | arrival.truncated) & acted
                assert arrival.acts[acted & ~over].all(), "who goes on acts on"
                ended |= over
                assert ended[arrival.starts].all(), "what begins must have ended"
                assert arrival.starts[ended & arrival.acts].all(), "what ended must begin anew"
                if arrival.reason is not None:
                    assert (arrival.reason[acted & ~over] == -1).all()
                rows = arrival.final_row.tolist()
                assert rows == sorted(set(rows))
                assert arrival.truncated[rows].all()
                assert number or not over.any()
                ended &= ~arrival.starts
                acted = arrival.acts
                ends += int(over.sum())
        assert ends, f"no episode ended within {self.rounds} rounds: set 'rounds' to more"

    def test_equal_seeds_lead_to_equal_episodes(self, new_vector: MakeVector) -> None:
        logs = []
        for _ in range(2):
            vector = new_vector()
            vector.start(SEED)
            player = Player(vector)
            player.play(self.rounds)
            logs.append(player.log)
        _assert_same(*logs)

    @pytest.mark.parametrize("moment", ["held", "away"])
    @pytest.mark.parametrize("rounds", [0, 1, 23])
    def test_a_state_leads_back_to_where_it_was_asked_for(
        self, new_vector: MakeVector, moment: str, rounds: int
    ) -> None:
        vector = new_vector()
        vector.start(SEED)
        player = Player(vector)
        player.play(rounds)
        held = player.hold() if moment == "held" else []
        state = stored(vector.state_dict())
        later = new_vector()
        assert later.load_state_dict(state) is self.exact
        heir = player.succeed(later)
        for arrival in held:
            player.answer(arrival)
        player.play(31 - bool(held))
        heir.play(31)
        if self.exact:
            _assert_same(heir.log, [log[-31:] for log in player.log])
        else:
            for log in heir.log:
                assert log[0].starts[log[0].acts].all()

    def test_asking_for_the_state_changes_nothing(self, new_vector: MakeVector) -> None:
        players = []
        for asks in (True, False):
            vector = new_vector()
            vector.start(SEED)
            player = Player(vector)
            for _ in range(5):
                player.play(2)
                for arrival in player.hold():
                    if asks:
                        vector.state_dict()
                    player.answer(arrival)
                if asks:
                    vector.state_dict()
            players.append(player)
        _assert_same(players[0].log, players[1].log)

    def test_closing_twice_does_no_harm(self, vector: VectorEnv) -> None:
        player = Player(vector)
        player.answer(player.recv())
        vector.close()
        vector.close()

    def test_closing_before_the_start_does_no_harm(self, new_vector: MakeVector) -> None:
        new_vector().close()


class EnvironmentTests(VectorEnvTests):
    """Subclass this in your plugin's tests and override ``environment``."""

    copies = 4
    """Number of copies a vector has; even."""
    workers = 0
    """Worker processes that step them; even."""

    @pytest.fixture
    def environment(self) -> Environment:
        """The environment under test."""
        raise NotImplementedError("override the fixture 'environment'")

    @pytest.fixture
    def make_vector(self, environment: Environment) -> MakeVector:
        """Makes a vector of copies; of two blocks where workers step them."""
        blocks = 2 if self.workers else 1
        layout = VectorLayout(workers=self.workers, blocks=blocks)
        return lambda: environment.vector(self.copies, layout)

    def test_the_environment_fits_the_protocol(self, environment: Environment) -> None:
        assert isinstance(environment, Environment)
        assert environment.name

    def test_the_spec_is_that_of_the_copies(
        self, environment: Environment, new_vector: MakeVector
    ) -> None:
        spec, built = environment.spec(), new_vector().spec
        assert spec.num_envs == spec.num_blocks == 1
        assert replace(spec, num_envs=self.copies, num_blocks=built.num_blocks) == built

    def test_the_spec_is_the_same_each_time(self, environment: Environment) -> None:
        assert environment.spec() == environment.spec()
