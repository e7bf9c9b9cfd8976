"""The kit for vectors notices what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from empo_core.protocols.environments import Action, TimeStep
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.serial import SerialVectorEnv
from empo_testing.environment import MakeVector, VectorEnvTests

KitFailures = Callable[..., set[str]]
FLAGS = "test_episodes_end_and_begin_where_the_flags_say_so"
SHAPES = "test_arrivals_have_the_shapes_and_dtypes_of_the_interface"
FIRST = "test_the_first_arrivals_begin_episodes_and_bring_no_outcome"
STATE = "test_a_state_leads_back_to_where_it_was_asked_for"
SEEDS = "test_equal_seeds_lead_to_equal_episodes"
ORDER = "test_blocks_arrive_in_the_order_in_which_they_were_sent"
SEND = "test_a_block_that_has_not_arrived_cannot_be_sent"
ACTION = "test_actions_of_a_wrong_shape_or_dtype_are_refused"
ASKING = "test_asking_for_the_state_changes_nothing"
CLOSE = "test_closing_twice_does_no_harm"


class Altered(SerialVectorEnv):
    """Tells something else than what happened."""

    def recv(self) -> TimeStep:
        return self.altered(super().recv())

    def altered(self, arrival: TimeStep) -> TimeStep:
        return arrival


class NeverStarts(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, starts=np.zeros_like(arrival.starts))


class AlwaysStarts(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, starts=np.ones_like(arrival.starts))


class HidesEnds(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, terminated=np.zeros_like(arrival.terminated))


class NeverActs(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, acts=arrival.starts)


class FinalOfAll(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        rows = np.arange(len(arrival.reward))
        return replace(arrival, final_row=rows, final_observation=arrival.observation)


class GivesReasons(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, reason=np.zeros(len(arrival.reward), np.int64))


class WideRewards(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, reward=arrival.reward.astype(np.float64))


class BlindToNaN(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, observation=np.full_like(arrival.observation, np.nan))


class PaysAtFirst(Altered):
    def altered(self, arrival: TimeStep) -> TimeStep:
        return replace(arrival, reward=np.ones_like(arrival.reward))


class IgnoresSeeds(SerialVectorEnv):
    runs = 0

    def start(self, seed: int) -> None:
        IgnoresSeeds.runs += 1
        super().start(IgnoresSeeds.runs)


class Forgets(SerialVectorEnv):
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> bool:
        self.start(0)
        return True


class Jumps(SerialVectorEnv):
    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        for group in self._groups:
            group.step()
        return state


class TakesEverything(SerialVectorEnv):
    def send(self, block: int, action: Action) -> None:
        block %= self.spec.num_blocks
        if self._turns.holds(block):
            shape = self._board.action[self.spec.agents_of(block)].shape
            super().send(block, np.resize(action, shape).astype(np.int64))


class SortsBlocks(SerialVectorEnv):
    def recv(self) -> TimeStep:
        self._turns._away.sort()
        return super().recv()


class ClosesOnce(SerialVectorEnv):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
        super().close()


def cartpole() -> GymnasiumEnv:
    return GymnasiumEnv(gymnasium.make("CartPole-v1", disable_env_checker=True))


@pytest.mark.parametrize(("broken", "noticed"), [
    (NeverStarts, {FLAGS, FIRST}),
    (AlwaysStarts, {FLAGS}),
    (HidesEnds, {FLAGS}),
    (NeverActs, {FLAGS}),
    (FinalOfAll, {FLAGS, FIRST}),
    (GivesReasons, {FLAGS}),
    (WideRewards, {SHAPES}),
    (BlindToNaN, {SHAPES}),
    (PaysAtFirst, {FIRST}),
    (IgnoresSeeds, {SEEDS}),
    (Forgets, {STATE}),
    (Jumps, {STATE, ASKING}),
    (TakesEverything, {SEND, ACTION}),
    (SortsBlocks, {ORDER}),
    (ClosesOnce, {CLOSE}),
])  # fmt: skip
def test_what_is_wrong_is_noticed(
    kit_failures: KitFailures, broken: type[SerialVectorEnv], noticed: set[str]
) -> None:
    class Case(VectorEnvTests):
        rounds = 30

        @pytest.fixture
        def make_vector(self) -> MakeVector:
            return lambda: broken([cartpole] * 4, blocks=2, order="rotation")

    assert noticed <= kit_failures(Case, only=sorted(noticed))
