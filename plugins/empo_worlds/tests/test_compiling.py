import pytest

from empo_worlds.compilation import compiled, nested


def test_a_part_works_in_kernels_and_is_refused_elsewhere() -> None:
    pytest.importorskip("numba")

    @nested
    def successor(number: int) -> int:
        return number + 1

    def twice_successor(number: int) -> int:
        return 2 * successor(number)

    assert compiled(twice_successor, on_disk=False)(3) == 8
    with pytest.raises(TypeError):
        successor(3)
