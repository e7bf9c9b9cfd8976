"""Conversion of observations and actions to and from rows."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import ActionSpec, ObservationSpec
from empo_environments.agent_spaces import AgentSpaces, common_observations
from empo_environments.spaces import acting, observing
from empo_learning.observation_bounds import ObservationBounds


def seen(space: spaces.Space[Any], observation: Any) -> np.ndarray:
    """The row that an observation becomes, over what was there before."""
    observations, bind = observing(space)
    row = np.full(observations.words, 7, observations.dtype)
    bind(row)(observation)
    return row


def trees() -> st.SearchStrategy[spaces.Space[Any]]:
    """Spaces that fit, and what gymnasium's own way of flattening them is defined for."""
    leaves = st.one_of(
        st.integers(1, 5).map(lambda n: spaces.Discrete(n, start=n - 3)),
        st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
        st.integers(1, 4).map(spaces.MultiBinary),
        st.sampled_from([(), (1,), (3,), (2, 3)]).map(
            lambda shape: spaces.Box(-1, 1, shape, np.float32)
        ),
    )
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.lists(parts, min_size=1, max_size=3).map(lambda all_: spaces.Tuple(tuple(all_))),
            st.dictionaries(st.sampled_from("abc"), parts, min_size=1).map(spaces.Dict),
        ),
        max_leaves=5,
    )


@settings(max_examples=60)
@given(space=trees(), seed=st.integers(0, 99))
def test_rows_are_what_gymnasium_flattens_to(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    observation = space.sample()
    np.testing.assert_array_equal(
        seen(space, observation), spaces.flatten(space, observation).astype(np.float32)
    )


@settings(max_examples=60)
@given(space=trees(), data=st.data())
def test_rows_become_actions_of_the_space(space: spaces.Space[Any], data: st.DataObject) -> None:
    kinds = {type(leaf) is spaces.Box for leaf in leaves_of(space)}
    if len(kinds) == 2:
        with pytest.raises(ConfigError, match="mixed"):
            acting(space)
        return
    actions, decode = acting(space)
    if actions.is_discrete:
        row = np.array([data.draw(st.integers(0, count - 1)) for count in actions.choices])
    else:
        row = np.array(data.draw(st.lists(
            st.floats(-9, 9, width=32), min_size=actions.size, max_size=actions.size
        )), np.float32)  # fmt: skip
    assert space.contains(decode(row))


def leaves_of(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in leaves_of(part)]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in leaves_of(part)]
    return [space]


def test_pictures_become_channel_first_whatever_way_they_come() -> None:
    picture = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
    last = spaces.Box(0, 255, (5, 4, 3), np.uint8)
    first = spaces.Box(0, 255, (3, 5, 4), np.uint8)
    expected = picture.transpose(2, 0, 1)
    for space, shown in ((last, picture), (first, np.ascontiguousarray(expected))):
        assert observing(space)[0] == ObservationSpec(words=60, dtype="uint8", grid=(3, 5, 4))
        np.testing.assert_array_equal(seen(space, shown), expected.ravel())


def test_pictures_of_floats_stay_floats() -> None:
    space = spaces.Box(-1, 1, (7, 6, 2), np.float64)
    picture = np.random.default_rng(0).uniform(-1, 1, (7, 6, 2))
    assert observing(space)[0] == ObservationSpec(words=84, grid=(2, 7, 6))
    row = seen(space, picture)
    assert row.dtype == np.float32
    np.testing.assert_array_equal(row, picture.transpose(2, 0, 1).ravel().astype(np.float32))


def test_grey_pictures_have_one_channel_but_tables_of_numbers_are_none() -> None:
    assert observing(spaces.Box(0, 255, (8, 9), np.uint8))[0].grid == (1, 8, 9)
    assert observing(spaces.Box(-1, 1, (8, 9), np.float32))[0].grid is None


def test_bytes_that_are_no_picture_are_numbers() -> None:
    space = spaces.Box(0, 255, (128,), np.uint8)
    assert observing(space)[0] == ObservationSpec(words=128, dtype="float32")


INF = math.inf


@pytest.mark.parametrize(
    ("space", "bounds"),
    [
        (spaces.Box(np.array([-1, -INF, 2]), np.array([1, INF, 3]), (3,), np.float64),
         ((1, -1, 1), (1, -INF, INF), (1, 2, 3))),
        (spaces.Box(-INF, INF, (3,), np.float32), ()),
        (spaces.Box(0, 10, (5, 4, 3), np.uint8), ((60, 0, 10),)),
        (spaces.Box(-5, 5, (2,), np.int64), ((2, -5, 5),)),
        (spaces.Tuple([spaces.Box(0, 255, (5, 4, 3), np.uint8), spaces.Discrete(4)]),
         ((64, 0, 1),)),
        (spaces.MultiBinary(2), ((2, 0, 1),)),
    ],
)  # fmt: skip
def test_rows_are_within_the_bounds_that_a_space_declares(space: Any, bounds: Any) -> None:
    assert observing(space)[0].bounds == bounds
    space.seed(0)
    outside = ObservationBounds(observing(space)[0]).outside
    assert not any(outside(seen(space, space.sample())) for _ in range(20))


def test_what_no_float32_reaches_is_no_bound() -> None:
    space = spaces.Box(-1.7e308, 1, (2,), np.float64)
    assert observing(space)[0].bounds == ((2, -INF, 1),)


@pytest.mark.parametrize(("high", "bounds"), [(1, ((2, -1, 1),)), (2, ())])
def test_agents_share_bounds_only_where_all_have_the_same(high: float, bounds: Any) -> None:
    agents = [
        AgentSpaces.of(spaces.Box(-1, highest, (2,), np.float32), spaces.Discrete(2))
        for highest in (1, high)
    ]
    assert common_observations(["one", "two"], agents).bounds == bounds


def test_bounds_are_laid_out_as_the_rows_of_pictures_are() -> None:
    low = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    space = spaces.Box(low, low + 0.5, (5, 4, 3), np.float32)
    outside = ObservationBounds(observing(space)[0]).outside
    assert outside(seen(space, low)) == ""
    wrong = low.copy()
    wrong[0, 0, 1] = 7  # The first pixel of the second channel.
    assert outside(seen(space, wrong)) == "entry 20 is 7 (from 1 to 1.5)"
    assert outside(seen(space, low + 1)).endswith("and 57 more")


def test_a_picture_comes_first_and_is_scaled_where_others_are_numbers() -> None:
    space = spaces.Dict(
        {
            "direction": spaces.Discrete(4),
            "image": spaces.Box(0, 255, (5, 4, 3), np.uint8),
        }
    )
    image = np.arange(60, dtype=np.uint8).reshape(5, 4, 3)
    assert observing(space)[0] == ObservationSpec(words=64, grid=(3, 5, 4))
    row = seen(space, {"direction": np.int64(2), "image": image})
    np.testing.assert_array_equal(row[60:], [0, 0, 1, 0])
    np.testing.assert_allclose(row[:60] * 255, image.transpose(2, 0, 1).ravel(), rtol=1e-5)


def test_numbers_beyond_the_bounds_are_moved_to_them() -> None:
    space = spaces.Box(np.array([-2, 0], np.float32), np.array([2, np.inf], np.float32))
    actions, decode = acting(space)
    assert actions == ActionSpec(low=(-2.0, 0.0), high=(2.0, np.inf))
    np.testing.assert_array_equal(decode(np.array([-5, 1e9], np.float32)), [-2, 1e9])


def test_actions_of_a_wider_dtype_keep_it() -> None:
    space = spaces.Box(-0.1, 0.1, (3,), np.float64)
    decoded = acting(space)[1](np.array([1, -1, 0], np.float32))
    assert decoded.dtype == np.float64
    assert space.contains(decoded)


def test_whole_numbers_within_bounds_are_options() -> None:
    space = spaces.Box(np.array([-1, 0]), np.array([1, 3]), dtype=np.int32)
    actions, decode = acting(space)
    assert actions == ActionSpec(choices=(3, 4))
    decoded = decode(np.array([0, 3]))
    np.testing.assert_array_equal(decoded, [-1, 3])
    assert space.contains(decoded)


def test_options_of_narrow_whole_numbers_do_not_overflow() -> None:
    space = spaces.Box(-128, 127, (1,), np.int8)
    decode = acting(space)[1]
    np.testing.assert_array_equal(decode(np.array([255])), [127])
    np.testing.assert_array_equal(decode(np.array([0])), [-128])


def test_what_an_environment_keeps_of_an_action_is_its_own() -> None:
    for space in (spaces.MultiDiscrete([4, 4]), spaces.Box(-1, 1, (2,), np.float32)):
        actions, decode = acting(space)
        row = np.ones(2, np.int64 if actions.is_discrete else np.float32)
        decoded = decode(row)
        row[:] = 0
        np.testing.assert_array_equal(decoded, [1, 1])


@pytest.mark.parametrize("space", [
    spaces.Text(5),
    spaces.Sequence(spaces.Discrete(3)),
    spaces.Graph(spaces.Discrete(3), None),
    spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))),
    spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Text(3)}),
])  # fmt: skip
def test_spaces_that_are_no_rows_are_refused_by_name(space: spaces.Space[Any]) -> None:
    for translate in (observing, acting):
        with pytest.raises(ConfigError, match=r"space.*(Text|Sequence|Graph|OneOf).*wrap"):
            translate(space)


@pytest.mark.parametrize("space", [
    spaces.Discrete(70_000), spaces.MultiDiscrete([40_000, 40_000])
])  # fmt: skip
def test_too_many_options_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=r"\(65,536"):
        observing(space)
    for unbounded in (space, spaces.Box(0, np.iinfo(np.uint64).max, (2,), np.uint64)):
        with pytest.raises(ConfigError, match="most 65,536"):
            acting(unbounded)


def test_empty_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="to see"):
        observing(spaces.Box(0, 1, (0,)))
    with pytest.raises(ConfigError, match="to do"):
        acting(spaces.Tuple(()))


BOX = spaces.Box(-1, 1, (3,), np.float32)
BYTES = spaces.Box(0, 255, (3,), np.uint8)
PARTS = spaces.Dict({"a": spaces.Tuple((BOX, spaces.Discrete(2)))})


@pytest.mark.parametrize(("space", "observation", "complaint"), [
    (BOX, np.zeros(4, np.float32), r"shape \(4,\).*shape \(3,\)"),
    (BOX, np.zeros((3, 1), np.float32), "shape"),
    (BOX, np.float32(0), "shape"),
    (BOX, None, "None"),
    (BOX, np.array(["a", "b", "c"]), "float32"),
    (BOX, np.zeros(3, np.complex64), "complex64"),
    (BYTES, np.zeros(3, np.float32), "float32"),
    (BYTES, np.zeros(3, np.int64), "int64"),
    (spaces.Discrete(3), 3, "from 0 to 2"),
    (spaces.Discrete(3, start=1), 0, "from 1 to 3"),
    (spaces.Discrete(3), 1.0, "integer"),
    (spaces.Discrete(3), None, "integer"),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "not in"),
    (spaces.MultiDiscrete([2, 3]), np.array([-1, 0]), "not in"),
    (PARTS, {"b": 0}, "'a'"),
    (PARTS, {"a": (np.zeros(3, np.float32),)}, r"\['a'\].*should have 1"),
    (PARTS, {"a": (np.zeros(2, np.float32), 0)}, r"observation\['a'\]\[0\]"),
    (PARTS, 3.0, "should have 'a'"),
])  # fmt: skip
def test_observations_that_do_not_fit_are_refused(
    space: spaces.Space[Any], observation: Any, complaint: str
) -> None:
    with pytest.raises(CollectError, match=complaint):
        seen(space, observation)


def test_other_numbers_are_taken_for_those_of_the_space() -> None:
    for observation in ([0, 1, 0.5], np.array([0, 1, 0.5]), (0.0, 1.0, 0.5)):
        np.testing.assert_array_equal(seen(BOX, observation), [0, 1, 0.5])


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_spaces_of_well_known_environments_fit(name: str) -> None:
    with gymnasium.make(name) as environment:
        observing(environment.observation_space)
        acting(environment.action_space)


@pytest.mark.parametrize("high", [1, 10, 255])
def test_a_picture_is_divided_by_its_declared_bound_and_not_by_255(high: int) -> None:
    space = spaces.Box(0, high, (5, 4, 3), np.uint8)
    found, bind = observing(space)
    assert (found.dtype, found.scale, found.grid) == ("uint8", high, (3, 5, 4))
    beside = spaces.Dict({"image": space, "direction": spaces.Discrete(4)})
    found, bind = observing(beside)
    row = np.zeros(found.words, found.dtype)
    bind(row)({"image": np.full((5, 4, 3), high, np.uint8), "direction": 2})
    assert row.dtype == np.float32
    np.testing.assert_allclose(row[:60], 1.0, rtol=1e-6)
    assert row[60:].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 10, (7,), np.uint8),
        spaces.Box(1, 10, (7, 7, 3), np.uint8),
        spaces.Box(0, 10, (7, 7, 3), np.int64),
        spaces.Box(0, 10, (2, 7, 7, 3), np.uint8),
    ],
    ids=str,
)
def test_other_integers_stay_the_numbers_they_are(space: spaces.Box) -> None:
    found, bind = observing(space)
    row = np.zeros(found.words, found.dtype)
    bind(row)(np.full(space.shape, 10, space.dtype))
    assert row.dtype == np.float32
    assert (row == 10).all()
