"""Files that are wrong in thousands of places: each is answered at once, whatever its size."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from empo_core.config.files import load_config
from empo_core.config.yaml import MAX_BYTES, MAX_PROBLEMS, MAX_VALUES
from empo_core.documents import build_named, read_document
from empo_core.errors import ConfigError, EmpoError
from empo_testing.processor_time import timed

SECONDS, MEMORY = 1.0, 256 * 2**20
HEAD = "algorithm: exact\n"
PARAMS = "algorithm:\n  name: exact\n  params:\n"
CONFIGS: dict[str, str] = {
    "20,000 unknown keys": HEAD + "".join(f"k{i}: 1\n" for i in range(20_000)),
    "unknown keys": HEAD + "".join(f"sead{i}: 1\n" for i in range(2_900)),
    "unknown params": PARAMS + "".join(f"    bata_h{i}: 1\n" for i in range(2_900)),
    "unknown trackers": f"{HEAD}trackers: [{', '.join(f'jsonk{i}' for i in range(5_900))}]",
    "wrong trackers": f"{HEAD}trackers: [{', '.join('1' for _ in range(5_900))}]",
    "values": f"[{'1,' * (MAX_BYTES // 2 - 1)}]",
    "words": "a: " + "b " * (MAX_BYTES // 2 - 2),
    "lines": "a:\n" + "  b\n" * (MAX_BYTES // 4 - 1),
    "brackets": "[" * MAX_BYTES,
    "a tag": "!" * MAX_BYTES,
    "a key": HEAD + "k" * 100_000 + ": 1",
}
MAPS: dict[str, str] = {
    "30 kB of unknown codes": "map: |\n" + f"  {'Zz ' * 100}\n" * 100,
    "unknown codes": "map: |\n" + f"  {'Zz ' * 300}\n" * 140,
    "keys": "map: |\n  AyAe\n" + "".join(f"k{i}: 1\n" for i in range(2_900)),
    "goals of one name": "map: Ay .. Ae\npossible_goals: ['0,0'" + ", '0,0'" * 5_900 + "]\n",
}
TABLE = """
agents: [{name: h, role: human, actions: [a]}, {name: r, role: robot, actions: [x]}]
initial: s0
terminal: [s1]
goals: {h: [{name: g, states: s1}]}
"""
TABLES: dict[str, str] = {
    "unknown states": f"{TABLE}states: [s0, s1]\ntransitions:\n"
    + "".join(f"  - {{state: s0, to: u{i}}}\n" for i in range(900)),
    "rules without use": f"{TABLE}states: [{', '.join(f's{i}' for i in range(2_000))}]\n"
    "transitions:\n" + "  - {state: '*', to: s1}\n" * 700,
    "many agents with one action": "agents:\n"
    + "".join(f"  - {{name: h{i}, role: human, actions: [a]}}\n" for i in range(31))
    + f"  - {{name: r, role: robot, actions: [{', '.join(f'a{i}' for i in range(1_300))}]}}\n"
    + f"states: [{', '.join(f's{i}' for i in range(3_000))}]\ninitial: s0\nterminal: [s1]\n"
    + "transitions: [{state: '*', to: s1}, {state: '*', to: s1}]\n",
    "states without a rule": f"{TABLE}states: [{', '.join(f's{i}' for i in range(5_000))}]\n"
    "transitions: [{state: s0, to: s1}]\n",
}
GOOD = {
    "multigrid": "map: Ay .. Ae\npossible_goals: ['0,0', '1,0', '2,0']\nmax_steps: 1\n",
    "table": f"{TABLE}states: [s0, s1]\ntransitions: [{{state: s0, to: s1}}]\nhorizon: 1\n",
    "bushworld": "map: Hu Ro 1\nB: 1\nmax_steps: 1\n",
}
BUSHES: dict[str, str] = {"unknown cells": "map: |\n" + f"  {'zz ' * 300}\n" * 140}
CASES = [
    *(("config", name, text) for name, text in CONFIGS.items()),
    *(("multigrid", name, text) for name, text in MAPS.items()),
    *(("table", name, text) for name, text in TABLES.items()),
    *(("bushworld", name, text) for name, text in BUSHES.items()),
]


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A good world of each kind, read once: importing the code for it is not what is measured."""
    for kind, text in GOOD.items():
        path = tmp_path_factory.mktemp("good") / "world.yaml"
        path.write_text(text, encoding="utf-8")
        build_named(kind, path)


def judged(kind: str, path: Path) -> str:
    """The message about a file, after a check of what it took to find it."""
    check: Callable[[Path], object] = load_config
    if kind != "config":
        check = lambda path: build_named(kind, path)  # noqa: E731

    def answer() -> str:
        try:
            check(path)
        except EmpoError as error:
            return str(error)
        return ""

    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message, seconds = timed(answer, SECONDS)
    assert seconds <= SECONDS, f"{path.read_bytes()[:200]!r} took {seconds:.2f} s"
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024
    assert more <= MEMORY, f"{path.read_bytes()[:200]!r} took {more:,} bytes"
    return message


@pytest.mark.parametrize(
    ("kind", "text"), [(k, t) for k, _, t in CASES], ids=[n for _, n, _ in CASES]
)
def test_a_file_that_is_wrong_everywhere_is_answered_within_a_second(
    tmp_path: Path, kind: str, text: str
) -> None:
    """The first problems are shown, five of them at most with a suggestion."""
    path = tmp_path / "file.yaml"
    path.write_text(text)
    message = judged(kind, path)
    assert message.endswith("; nothing was run")
    assert len(message.splitlines()) <= MAX_PROBLEMS + 1
    assert message.lower().count("did you mean") <= 10  # A key may have two.
    assert "a validator raises" not in message


@pytest.mark.parametrize("line", ["\n", "mdp\n", '"grid" ', " "])
def test_signs_of_other_formats_are_sought_within_a_second(tmp_path: Path, line: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(line * ((MAX_BYTES - 5) // len(line)) + "\na: [")

    def answer() -> str:
        with pytest.raises(ConfigError) as caught:
            read_document(path)
        return str(caught.value)

    message, seconds = timed(answer, SECONDS)
    assert seconds <= SECONDS
    assert message.startswith(f"{path}:")


@pytest.mark.slow
def test_mutants_that_repeat_parts_of_files_are_answered_within_a_second(tmp_path: Path) -> None:
    """Lines, blocks and characters of valid files, repeated until the file is full."""
    rng, path = random.Random(3), tmp_path / "file.yaml"
    for number in range(25):
        kind, _, text = rng.choice(CASES)
        lines = (text[:2_000] if rng.random() < 0.5 else TABLE + HEAD).splitlines(keepends=True)
        start = rng.randrange(len(lines))
        part = "".join(lines[start : start + rng.randint(1, 4)]) or "a"
        if rng.random() < 0.3:
            part = part[: rng.randint(1, 5)] + rng.choice(
                ["'", '"', "{", "? ", "- ", "|", "\t", "#"]
            )
        text = "".join(lines[:start]) + part * (rng.choice([1_000, MAX_BYTES]) // len(part))
        path.write_text(text[: MAX_BYTES - 1 - number])
        judged(kind, path)


def test_a_path_that_no_file_can_have_is_an_error_with_its_place(tmp_path: Path) -> None:
    """Too long a path, and a home of an unknown user, are no faults of a plugin."""
    path = tmp_path / "config.yaml"
    for text in ("x" * 5_000, "~nobody-of-this-name/x"):
        path.write_text(f"{HEAD}runs: {text}\n")
        with pytest.raises(ConfigError, match=r":2:\d+: runs: "):
            load_config(path)
        path.write_text(f"{HEAD}world_model: {{name: multigrid, params: {{file: {text}}}}}\n")
        with pytest.raises(ConfigError, match=r":2:\d+: .*file: "):
            load_config(path)


def test_more_values_than_a_second_allows_are_refused_where_they_begin(tmp_path: Path) -> None:
    """Limits of a file are in the message, with what to do."""
    path = tmp_path / "config.yaml"
    path.write_text("- 1\n" * (MAX_VALUES + 1))
    with pytest.raises(ConfigError, match=rf":{MAX_VALUES}:3: .*6,000"):
        load_config(path)


def test_mistakes_after_any_end_of_a_line_have_a_place(tmp_path: Path) -> None:
    """The parser ends lines at carriage returns as well."""
    path = tmp_path / "config.yaml"
    for end in ("\n", "\r", "\r\n"):
        path.write_bytes(f"a: 1{end}b: 2{end}c:: d: e\n".encode())
        with pytest.raises(ConfigError, match=r":3:\d+: .*': '"):
            load_config(path)
