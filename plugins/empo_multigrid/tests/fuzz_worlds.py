"""Mutate world files and check that each loads or is refused with a located message.

Run it by hand for the full count, with a seed of its own:
``python plugins/empo_multigrid/tests/fuzz_worlds.py --count 20000 --seed 7``.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from ruamel.yaml import YAML

import empo_multigrid
from empo_core.config.files import parse_yaml, validate_document
from empo_core.errors import ConfigError
from empo_multigrid.file.compiler import compile_world
from empo_multigrid.file.worldfile import WorldFile
from empo_multigrid.world import MultigridWorld
from empo_testing.processor_time import timed

FOLDER = Path(empo_multigrid.__file__).parent / "worlds"
LOCATED = re.compile(r"^world\.yaml:\d+:\d+: ", re.MULTILINE)
MAX_SECONDS = 1.0
ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, -(2**63), 10**30, 0.5, 1.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), "", " ", "e", "We", "1,1", "9,9", "1,1,1", "0x1f", "\x00",
    "\x1b[31m", "\ud800", "\U0001f600", "=1+1", "<b>", [], [[]], [[], []], {}, {"cells": "1,1"},
    [1, 1], [[1, 1], [2, 2]], ["We", "Ay"], {"0": {}}, {"1,1": {"enabled": True}}, [0], "robots",
    "Actions", "humans", "SmallActions", "x" * 300, [0] * 300,
]  # fmt: skip
ODD_KEYS = [
    "map", "max_step", "goals", "agents", "objects", "humans", "robots", "action_rules",
    "possible_goals", "orientations", "contains", "weight", "0", "1,1", "", "é", "__class__",
]  # fmt: skip
SNIPPETS = [
    b"&a ", b"*a", b"!!python/object:os.system ", b"? ", b"- ", b": ", b"|\n", b">\n", b"{", b"}",
    b"[", b"]", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\t", b"\r", b"\n---\n", b"\n...\n", b"#",
    b"'", b'"', b"<<: ", b"%YAML 1.1\n", b"\xe2\x80\xa8", b"\\x", b"1e999", b"0o7", b"~", b"Ay",
    b"Zz", b"K", b"M",
]  # fmt: skip


def corpus() -> list[str]:
    """The library, and files with every key and every spelling of a map."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.yaml"))]
    everything = """
metadata: {name: everything}
map: [We Ay Ae Xr, We Un Mw Ki, We Ps CB Bu, We .. Lr ..]
max_steps: 9
seed: 1
orientations: [e, 2]
can_push_rocks: e
grid_size: 4
stumble_probability: 0.5
possible_goals: ["0,0, 3,3", [1, 1], {cells: ["1,1", "2,2"], weight: 2, name: two}]
goals: {0: ["0,0, 3,3"]}
goal_coverage: partial
humans: [0]
robots: [1]
agents: {0: {name: Ada, can_push_rocks: true, can_enter_magic_walls: true}}
objects:
  "1,1": {stumble_probability: 0.5}
  "2,1": {enter_probability: 0.5, solidify_probability: 0.5}
  "3,0": {contains: Kr}
  "1,2": {trigger_colour: red, is_on: true}
  "2,2": {programmed_agent: 1, programmed_action: forward}
action_rules: [{agents: robots, cells: "1,1", forbid: [still]}]
"""
    listed = "map: [[Ay, .., Ae], [Kr, Lr, Xb]]\ngoals: {0: [[0, 0], [[0, 0], [2, 1]]]}\n"
    as_json = json.dumps(parse_yaml(everything, name="everything.yaml").data, indent=1)
    return [*texts, everything, listed, as_json]


@dataclass
class Tally:
    """Counts and failures of a fuzzing run over mutated world files."""

    accepted: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


def places(data: Any, loc: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below the root."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*loc, key)
        if isinstance(value, dict | list):
            yield from places(value, (*loc, key))


def structural(text: str, rng: random.Random) -> str:
    """One to three changes to the data of a file."""
    data = copy.deepcopy(parse_yaml(text, name="corpus.yaml").data)
    for _ in range(rng.randint(1, 3)):
        loc = rng.choice(list(places(data)))
        parent = data
        for part in loc[:-1]:
            parent = parent[part]
        _change(parent, loc[-1], rng)
        if not data:
            break
    if rng.random() < 0.5:
        return json.dumps(data).replace("NaN", ".nan").replace("Infinity", ".inf")
    stream = StringIO()
    YAML(typ="safe", pure=True).dump(data, stream)
    return stream.getvalue()


def _change(parent: Any, key: Any, rng: random.Random) -> None:
    """Change, remove, rename, copy or damage one entry of a dict or list."""
    kind = rng.randrange(6)
    value = parent[key]
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[rng.choice(ODD_KEYS)] = parent.pop(key)
    elif kind == 1:
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(value))
    elif kind == 2 and isinstance(parent, dict):
        parent[rng.choice(ODD_KEYS)] = copy.deepcopy(rng.choice(ODD_VALUES))
    elif isinstance(value, str) and value and kind < 5:
        position = rng.randrange(len(value))
        letter = rng.choice("WAKMBLCODXUnye. 0,19-\n") if kind == 3 else ""
        parent[key] = value[:position] + letter + value[position + 1 :]
    elif isinstance(value, int | float) and not isinstance(value, bool) and kind < 5:
        parent[key] = rng.choice([value + 1, -value, value * 10**6, value + 0.5, str(value)])
    else:
        parent[key] = copy.deepcopy(rng.choice(ODD_VALUES))


def bytewise(text: str, rng: random.Random) -> bytes:
    """One to four changes to the bytes of a file."""
    raw = text.encode()
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(raw) + 1)
        end = min(len(raw), start + rng.choice([0, 1, 1, 2, 5, 40]))
        new = rng.choice(
            [b"", rng.choice(SNIPPETS), bytes([rng.randrange(256)]), raw[start:end] * 2]
        )
        raw = raw[:start] + new + raw[end:]
    return raw


def mutants(count: int, seed: int) -> Iterator[bytes | str]:
    """Mutated files: half by structure, half by bytes."""
    rng = random.Random(seed)
    texts = corpus()
    for number in range(count):
        text = rng.choice(texts)
        yield structural(text, rng) if number % 2 else bytewise(text, rng)


def try_out(text: bytes | str) -> None:
    """Load a world file, and assert that an accepted world can take a few steps."""
    document = parse_yaml(text, name="world.yaml")
    world = MultigridWorld(*compile_world(validate_document(WorldFile, document), document))
    generator = torch.Generator().manual_seed(0)
    state = world.initial_state()[None]
    for _ in range(3):
        available = world.available(state)[0]
        actions = torch.multinomial(available.double(), 1, generator=generator).T
        prob = world.transitions(state, actions).prob
        assert abs(float(prob.sum()) - 1) < 1e-12
        state = world.step(state, actions, generator)


def objection(text: bytes | str) -> Exception | None:
    """What a world file is refused with, or fails with; nothing if it is accepted."""
    try:
        try_out(text)
    except Exception as error:  # Whatever comes is a finding, not the end of the run.
        return error
    return None


def fuzz(count: int, seed: int = 0) -> Tally:
    """Try mutants and say what became of them."""
    tally = Tally()
    try_out(corpus()[0])  # What compiling kernels takes says nothing about a file.
    for mutant in mutants(count, seed):
        error, elapsed = timed(partial(objection, mutant), MAX_SECONDS)
        if error is None:
            tally.accepted += 1
        elif isinstance(error, ConfigError):
            tally.refused += 1
            lines = str(error).splitlines()
            if not all(LOCATED.match(line) for line in lines[:-1]) or len(lines) < 2:
                tally.failures.append(f"not located: {error}\n{mutant!r}")
            if any("report it to the plugin" in line for line in lines):
                tally.failures.append(f"a validator raised: {error}\n{mutant!r}")
            tally.reasons[re.sub(r"[^a-z ]+", "", lines[0].split(": ")[-1])[:30]] += 1
        else:
            tally.failures.append(f"{type(error).__name__}: {error}\n{mutant!r}")
        tally.slowest_s = max(tally.slowest_s, elapsed)
        if elapsed > MAX_SECONDS:
            tally.failures.append(f"took {elapsed:.1f} CPU s\n{mutant!r}")
    return tally


def main() -> None:
    """Fuzz from the command line; the exit status says whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable()
    start = time.perf_counter()
    tally = fuzz(options.count, options.seed)
    seconds = time.perf_counter() - start
    for failure in tally.failures[:20]:
        print(failure[:2000])
    print(
        f"{options.count} mutants in {seconds:.0f} s: {tally.accepted} accepted, "
        f"{tally.refused} refused for {len(tally.reasons)} kinds of reasons, slowest "
        f"{tally.slowest_s:.2f} CPU s, {len(tally.failures)} failures"
    )
    raise SystemExit(bool(tally.failures))


if __name__ == "__main__":
    main()
