from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from empo_learning.bounded_curve import BoundedCurve
from empo_learning.state_tree import flatten, unflatten


@given(count=st.integers(0, 300), max_rows=st.integers(2, 20))
def test_a_curve_keeps_even_rows_and_the_newest(count: int, max_rows: int) -> None:
    curve: BoundedCurve[int] = BoundedCurve(range(count), max_rows=max_rows)
    assert len(curve) <= max_rows + 1
    stride = 1
    while len(range(0, count, stride)) + ((count - 1) % stride > 0) > max_rows:
        stride *= 2
    expected = list(range(0, count, stride))
    if count and (count - 1) % stride:
        expected.append(count - 1)
    assert list(curve) == expected
    if count:
        assert curve[-1] == count - 1
        assert len(curve) > max_rows // 2 - 1 or stride == 1


@given(first=st.integers(0, 60), second=st.integers(0, 60))
def test_a_curve_goes_on_as_it_would_have(first: int, second: int) -> None:
    rows = [(number, number / 7) for number in range(first + second)]
    begun: BoundedCurve[tuple[int, float]] = BoundedCurve(rows[:first], max_rows=8)
    resumed: BoundedCurve[tuple[int, float]] = BoundedCurve(max_rows=8)
    structure, tensors = flatten(begun.state_dict())
    resumed.load_state_dict(unflatten(structure, tensors))
    for row in rows[first:]:
        resumed.append(row)
    assert list(resumed) == list(BoundedCurve(rows, max_rows=8))


def test_a_curve_is_bounded_by_default() -> None:
    assert len(BoundedCurve(range(25_000))) <= 10_000
