"""The callback kit passes right callbacks and fails each one broken on purpose."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from empo_core.protocols import Callback, Training
from empo_testing.callback import CallbackTests

Runner = Callable[..., set[str]]


class Counting(Callback):
    """Follows the rules: counts updates, and lowers the rate with them."""

    def __init__(self) -> None:
        self.updates = 0

    def after_update(self, training: Training) -> None:
        self.updates += 1
        training.lr_scale = 1 / self.updates

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.updates = state_dict["updates"]


class Misspelt(Counting):
    def after_updates(self, training: Training) -> None:
        """Nobody calls it."""


class NeedsAScore(Counting):
    def after_evaluation(
        self, training: Training, score: float | None, metrics: Mapping[str, Any]
    ) -> None:
        assert score is not None


class NeedsAnUpdate(Counting):
    def finish(self, training: Training) -> None:
        if not self.updates:
            raise LookupError("no update")


class StopsLearning(Counting):
    def after_update(self, training: Training) -> None:
        training.lr_scale = 0.0


class Forgets(Counting):
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing."""


class KeepsObjects(Counting):
    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "self": self}


class Draws(Counting):
    def after_rollout(self, training: Training) -> None:
        torch.rand(1)


class Prints(Counting):
    def after_rollout(self, training: Training) -> None:
        print("a rollout")


class NoCallback:
    """Has the hooks, but not the base class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: {}


FLAWS = [
    (NoCallback, "test_it_is_a_callback"),
    (Misspelt, "test_no_hook_is_misspelt"),
    (NeedsAScore, "test_an_evaluation_may_have_no_score"),
    (NeedsAnUpdate, "test_a_run_may_end_before_anything_happens"),
    (StopsLearning, "test_a_whole_run_can_be_followed"),
    (Forgets, "test_it_goes_on_from_its_state"),
    (KeepsObjects, "test_its_state_can_be_stored_at_any_time"),
    (Draws, "test_global_randomness_is_left_alone"),
    (Prints, "test_standard_output_is_left_to_the_result"),
]


def subclass(make: Callable[[], Any]) -> type:
    class TestIt(CallbackTests):
        @pytest.fixture
        def callback(self) -> Callback:
            return make()  # type: ignore[no-any-return]

        @pytest.fixture
        def other(self) -> Callback:
            return make()  # type: ignore[no-any-return]

    return TestIt


def test_a_right_callback_passes(kit_failures: Runner) -> None:
    assert kit_failures(subclass(Counting)) == set()


@pytest.mark.parametrize(("flaw", "caught_by"), FLAWS)
def test_a_broken_callback_fails(
    kit_failures: Runner, flaw: Callable[[], Any], caught_by: str
) -> None:
    assert caught_by in kit_failures(subclass(flaw), only=[caught_by])


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, name in FLAWS}
    assert caught == {name for name in dir(CallbackTests) if name.startswith("test_")}
