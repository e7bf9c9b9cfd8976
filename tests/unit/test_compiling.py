import os
from pathlib import Path

import pytest

from empo_core.compilation import forget_stale_code


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Two source files, and machine code compiled after both were written."""
    (tmp_path / "__pycache__").mkdir()
    for name, time in (("a.py", 10), ("b.py", 20), ("__pycache__/a.f-1.py311.nbi", 30)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time, time))
    forget_stale_code.cache_clear()
    return tmp_path


def test_machine_code_newer_than_all_sources_is_kept(package: Path) -> None:
    forget_stale_code(package)
    assert list(package.glob("__pycache__/*.nbi"))


def test_a_change_in_any_file_of_the_package_forgets_all_machine_code(package: Path) -> None:
    os.utime(package / "b.py", (40, 40))
    forget_stale_code(package)
    assert not list(package.glob("__pycache__/*.nbi"))
