"""Check every jaxtyping shape at run time while tests run, and run kits inside tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from jaxtyping import install_import_hook

pytest_plugins = ["pytester"]


def _tensor_modules() -> list[str]:
    """Names of the plugins' modules whose shapes can be checked.

    Left out: ``plugin`` modules (beartype cannot check pydantic's own classes) and modules
    with numba kernels (numba cannot compile a function that is wrapped in a check).
    """
    names = []
    for source in Path(__file__).parent.glob("plugins/*/src"):
        for path in sorted(source.rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if path.stem != "plugin" and "jaxtyping" in text and "numba" not in text:
                names.append(".".join(path.relative_to(source).with_suffix("").parts))
    return names


install_import_hook(
    ["empo_core.protocols", "empo_core.types", *_tensor_modules()], "beartype.beartype"
)


@pytest.fixture
def kit_failures(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., set[str]]:
    """A function that runs a kit's subclass in a pytest of its own and names what fails.

    It takes the class and, optionally, the names of the only tests to run.
    """

    def run(tests: type, only: Sequence[str] = ()) -> set[str]:
        case = ModuleType("kit_case")
        case.TestCase = tests  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "kit_case", case)
        path = pytester.makepyfile(test_case="from kit_case import TestCase")
        # In this process, because importing torch again for each case would take seconds.
        options = ["-q", "--tb=native", "--no-summary", "-Werror"]
        # The hypothesis plugin would be imported, and rewritten, anew each time: a second.
        options += ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
        if only:
            options += ["-k", " or ".join(only)]
        recorder = pytester.inline_run(str(path), *options)
        passed, _, failed = recorder.listoutcomes()
        assert passed or failed, "the kit ran no test"
        return {report.nodeid.split("::")[-1].split("[")[0] for report in failed}

    return run
