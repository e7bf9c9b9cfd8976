"""Mistakes of YAML's syntax in words that need no knowledge of a parser."""

from __future__ import annotations

import re

from ruamel.yaml.error import MarkedYAMLError

_COLON = re.compile(r":(\s|$)")
_BREAK = re.compile("\r\n|[\n\r]")
"""Ends of lines as the parser counts them."""


def mistake(error: MarkedYAMLError, text: str) -> tuple[int, int, str]:
    """The line and column (from 1) of a mistake, and what to do about it.

    Args:
        error: What the parser says.
        text: What it was given.
    """
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    begin = error.context_mark.line if error.context_mark else line
    lines = _BREAK.split(text)
    problem, context = error.problem or "", error.context or ""
    if "cannot start any token" in problem:
        character = lines[line][column : column + 1]
        if character == "\t":
            reason = "a tab stands here; indent with spaces"
        else:
            reason = f"a value cannot begin with {character!r}; put quotes around it"
    elif "mapping values are not allowed" in problem:
        if _COLON.search(lines[line][:column]):
            reason = "a second ': ' in one line; begin a new line, or put quotes around the value"
        else:
            column = _indentation(lines[line])
            reason = f"this line is indented, but the one above has its value already; {_INDENT}"
    elif "expected <block end>" in problem:
        reason = f"this line fits to none of those above; {_INDENT}"
    elif "could not find expected ':'" in problem:
        line, column = begin, _indentation(lines[begin])
        reason = "there is no ': ' after the key in this line; write 'key: value'"
    elif "flow" in context:
        bracket = "}" if "mapping" in context else "]"
        reason = f"what opens in line {begin + 1} lacks a '{bracket}', or a ',' before this"
    elif "quoted scalar" in context:
        line, column = begin, error.context_mark.column if error.context_mark else column
        reason = "the quotation mark that opens here is never closed"
    else:
        words = " ".join(problem.split()) or "it cannot be read"
        reason = f"is not valid YAML: {words}"
    return line + 1, column + 1, reason


_INDENT = "lines that belong together begin in the same column"


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
