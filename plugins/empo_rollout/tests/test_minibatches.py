from itertools import permutations
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from empo_rollout.buffer import annealed_beta, drawn_segments, probabilities
from empo_rollout.params import UpdateParams


class Minibatch(NamedTuple):
    columns: Tensor
    weight: Tensor


def drawn(
    advantage: Tensor, size: int, sampling: str, *, seed: int = 0, **options: Any
) -> list[Minibatch]:
    """The minibatches of one pass."""
    params = UpdateParams.model_validate({"sampling": sampling, **options})
    if sampling == "steps":
        size, advantage = size * len(advantage), advantage.flatten()[None]
    generator = torch.Generator().manual_seed(seed)
    columns, weight = drawn_segments(advantage, params, size, progress=0.0, generator=generator)
    if weight is None:
        weight = torch.ones(len(columns))
    return [Minibatch(*pair) for pair in zip(columns.split(size), weight.split(size), strict=True)]


def sized(*sizes: float) -> Tensor:
    """Advantages ``[2 segment]`` whose magnitudes add up to these sizes."""
    half = torch.tensor(sizes) / 2
    return torch.stack([half, -half])


def all_segments(batches: list[Minibatch]) -> Tensor:
    return torch.cat([batch.columns for batch in batches])


class TestPartitions:
    @settings(max_examples=25)
    @given(
        sampling=st.sampled_from(["shuffled", "sequential", "steps"]),
        count=st.integers(1, 6),
        size=st.integers(1, 4),
        horizon=st.integers(1, 5),
        seed=st.integers(0, 1000),
    )
    def test_everything_is_in_one_minibatch_of_the_right_size_and_counts_fully(
        self, sampling: str, count: int, size: int, horizon: int, seed: int
    ) -> None:
        batches = drawn(torch.randn(horizon, count * size), size, sampling, seed=seed)
        assert len(batches) == count
        single = sampling == "steps"
        chosen = [batch.columns for batch in batches]
        assert {len(each) for each in chosen} == {size * horizon if single else size}
        expected = torch.arange(count * size * (horizon if single else 1))
        assert torch.equal(torch.cat(chosen).sort().values, expected)
        assert all(
            torch.equal(b.weight, torch.ones(len(c))) for b, c in zip(batches, chosen, strict=True)
        )

    def test_sequential_minibatches_are_in_order(self) -> None:
        assert all_segments(drawn(torch.randn(2, 6), 2, "sequential")).tolist() == [*range(6)]

    @pytest.mark.parametrize("sampling", ["shuffled", "steps"])
    def test_every_order_is_as_likely(self, sampling: str) -> None:
        counts = dict.fromkeys(permutations(range(3)), 0)
        for seed in range(600):
            (batch,) = drawn(torch.zeros(1, 3), 3, sampling, seed=seed)
            counts[tuple(batch.columns.tolist())] += 1
        # 600/6 each; five standard deviations of a binomial distribution.
        assert all(abs(count - 100) < 5 * (600 / 6 * 5 / 6) ** 0.5 for count in counts.values())


@pytest.mark.parametrize("sampling", ["shuffled", "steps", "prioritized"])
def test_the_generator_decides_alone(sampling: str) -> None:
    advantage = sized(*range(1, 33))

    def chosen(seed: int) -> list[list[int]]:
        return [batch.columns.tolist() for batch in drawn(advantage, 8, sampling, seed=seed)]

    torch.manual_seed(1)
    once = chosen(3)
    torch.manual_seed(2)
    assert chosen(3) == once
    assert chosen(4) != once


class TestPrioritized:
    def test_probabilities_are_powers_of_the_sizes_of_advantages(self) -> None:
        sizes = torch.tensor([1.0, 4.0, 9.0]).double()
        expected = sizes.sqrt() / sizes.sqrt().sum()
        found = probabilities(sized(1.0, 4.0, 9.0), 0.5)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
        assert found.sum().item() == pytest.approx(1, abs=1e-12)

    def test_segments_are_drawn_as_often_as_they_should_be(self) -> None:
        sizes, rounds = [1.0, 2.0, 3.0, 6.0], 400
        q = (torch.tensor(sizes) / sum(sizes)).tolist()
        # First or second of two without repetitions.
        expected = torch.tensor(
            [q[i] + sum(q[j] * q[i] / (1 - q[j]) for j in range(4) if j != i) for i in range(4)]
        )
        batches = [
            batch
            for seed in range(rounds)
            for batch in drawn(sized(*sizes), 2, "prioritized", seed=seed, prio_alpha=1.0)
        ]
        assert len(batches) == 2 * rounds
        share = torch.bincount(all_segments(batches), minlength=4) / len(batches)
        bound = 5 * (expected * (1 - expected) / len(batches)).sqrt()
        assert bool(((share - expected).abs() < bound).all())
        # Even draws would give a half.
        assert share[3] > 0.7

    def test_a_minibatch_has_no_segment_twice(self) -> None:
        for batch in drawn(sized(*([1.0] * 15 + [1e6])), 8, "prioritized", prio_alpha=1.0):
            assert len(batch.columns.unique()) == 8

    def test_weights_make_up_for_how_often_segments_are_drawn(self) -> None:
        sizes = torch.tensor([1.0, 2.0, 3.0, 6.0])
        for batch in drawn(
            sized(*sizes.tolist()), 2, "prioritized", prio_alpha=1.0, prio_beta0=0.5
        ):
            expected = (4 * sizes[batch.columns] / 12) ** -0.5
            torch.testing.assert_close(batch.weight, expected, rtol=1e-5, atol=0)

    @pytest.mark.parametrize("alpha", [0.0, 0.6])
    def test_equal_priorities_need_no_correction(self, alpha: float) -> None:
        for size in (0.0, 3.0):
            for batch in drawn(sized(*[size] * 8), 4, "prioritized", prio_alpha=alpha):
                torch.testing.assert_close(batch.weight, torch.ones(4))

    @pytest.mark.parametrize("bad", [torch.nan, torch.inf])
    def test_advantages_that_are_not_finite_do_no_harm(self, bad: float) -> None:
        advantage = sized(*[1.0] * 64)
        advantage[0, 5] = bad
        batches = drawn(advantage, 8, "prioritized", prio_alpha=0.7)
        assert 5 not in all_segments(batches).tolist()
        assert all(bool(batch.weight.isfinite().all()) for batch in batches)

    def test_a_minibatch_of_all_segments_works_where_few_have_priority(self) -> None:
        (batch,) = drawn(sized(0.0, 0.0, 1e30, 0.0), 4, "prioritized", prio_alpha=1.0)
        assert batch.columns.sort().values.tolist() == [0, 1, 2, 3]


class TestAnnealing:
    def test_beta_rises_evenly_to_one_and_stays_there(self) -> None:
        found = [annealed_beta(0.6, progress) for progress in (0.0, 0.25, 0.5, 1.0, 1.5)]
        assert found == pytest.approx([0.6, 0.7, 0.8, 1.0, 1.0])

    @given(beta0=st.floats(0, 1), progress=st.floats(-1, 3))
    @settings(max_examples=50)
    def test_beta_stays_between_its_start_and_one(self, beta0: float, progress: float) -> None:
        assert beta0 <= annealed_beta(beta0, progress) <= 1
