"""Places in the code of environments, for messages."""

from __future__ import annotations

import inspect
import re
import traceback
from types import CodeType
from typing import Literal

Method = Literal["reset", "step"]
NOT_THEIRS = re.compile(
    r"[\\/](empo_core|src[\\/]empo_(environments|testing)|site-packages)[\\/]|[\\/]contextlib\.py$"
)
"""Files of ours, of installed packages, and of what we use, that lie between us and theirs."""
RESETS = {"begun", "begin"}
"""Functions of ours within which environments are reset."""


def place_of_error(error: BaseException, source: object = None) -> str:
    """File and line in the code of an environment where an error arose; empty if unknown.

    Of an error about what ``reset`` or ``step`` returned that is where the method begins.

    Args:
        error: What was raised.
        source: The environment; None: it could not be made, and the error may have it.
    """
    source = getattr(error, "source", None) if source is None else source
    frames = traceback.extract_tb(error.__traceback__)
    files = {code.co_filename for code in _codes(source)}
    inside = [frame for frame in frames if frame.filename in files] or [
        frame for frame in frames if not NOT_THEIRS.search(frame.filename)
    ]
    if inside:
        return f"{inside[-1].filename}:{inside[-1].lineno}, in {inside[-1].name}"
    is_reset = any(frame.name in RESETS for frame in frames)
    return place_of_method(source, "reset" if is_reset else "step")


def place_of_method(source: object, method: Method) -> str:
    """File and line where a method of an environment begins; empty if it is not in Python."""
    code = _code(source, method)
    return f"{code.co_filename}:{code.co_firstlineno}, in {method}" if code else ""


def _codes(source: object) -> list[CodeType]:
    codes = (_code(source, name) for name in ("reset", "step", "__init__"))
    return [code for code in codes if code is not None]


def _code(source: object, method: str) -> CodeType | None:
    function = inspect.unwrap(getattr(type(source), method, None) or object)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
