"""Random numbers that a page can repeat: the generator of O'Neill, and draws by running totals."""

from __future__ import annotations

import pytest

from empo_inspector.pcg32 import Pcg32

# Of seed 42 in stream 54, the first round that the demo program of the generator prints.
PUBLISHED = [0xA15C02B7, 0x7B47F409, 0xBA1D3330, 0x83D2F293, 0xBFA4784B, 0xCBED606E]


def test_the_published_numbers_come_out() -> None:
    random = Pcg32(42)
    assert [random.next() for _ in PUBLISHED] == PUBLISHED


@pytest.mark.parametrize(
    ("seed", "numbers"),
    [
        (0, [0x47C28B93, 0xB98F6A27, 0x7D3DCB1E]),
        (2**32 - 1, [0x1836F28A, 0x41720992, 0x67039735]),
    ],
)
def test_the_numbers_in_the_documentation_come_out(seed: int, numbers: list[int]) -> None:
    random = Pcg32(seed)
    assert [random.next() for _ in numbers] == numbers


def test_the_state_is_all_there_is_to_keep() -> None:
    random, other = Pcg32(7), Pcg32(0)
    random.next()
    other.state = random.state
    assert [random.next() for _ in range(5)] == [other.next() for _ in range(5)]


@pytest.mark.parametrize(
    ("chances", "drawn"),
    [
        ([0.25, 0.25, 0.25, 0.25], [2, 1, 2, 2, 2, 3]),
        ([0.5, 0.0, 0.5], [2, 0, 2, 2, 2, 2]),
        ([0.0, 1.0, 0.0], [1, 1, 1, 1, 1, 1]),
        ([0.1, 0.1, 0.0], [1, 1, 1, 1, 1, 1]),  # The rest of 1 is the last positive one's.
        ([], [0, 0, 0, 0, 0, 0]),
    ],
)
def test_each_draw_uses_one_number(chances: list[float], drawn: list[int]) -> None:
    random, after = Pcg32(42), Pcg32(42)
    # The published numbers over 2**32: 0.63, 0.48, 0.73, 0.52, 0.75, 0.80.
    assert [random.draw(chances) for _ in PUBLISHED] == drawn
    for _ in PUBLISHED:
        after.next()
    assert random.state == after.state
