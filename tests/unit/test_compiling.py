import os
from pathlib import Path

import pytest

from empo_core.compilation import compiled, forget_stale_code, nested


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Two source files, one of another folder, and machine code compiled after all of them."""
    for folder in ("__pycache__", "shared"):
        (tmp_path / folder).mkdir()
    for name, time in (
        ("a.py", 10),
        ("b.py", 20),
        ("shared/c.py", 25),
        ("__pycache__/a.f-1.py311.nbi", 30),
    ):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time, time))
    forget_stale_code.cache_clear()
    return tmp_path


def test_machine_code_newer_than_all_sources_is_kept(package: Path) -> None:
    forget_stale_code(package, package / "shared")
    assert list(package.glob("__pycache__/*.nbi"))


@pytest.mark.parametrize("changed", ["b.py", "shared/c.py"])
def test_a_change_in_any_file_that_kernels_call_forgets_all_machine_code(
    package: Path, changed: str
) -> None:
    os.utime(package / changed, (40, 40))
    forget_stale_code(package, package / "shared")
    assert not list(package.glob("__pycache__/*.nbi"))


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
