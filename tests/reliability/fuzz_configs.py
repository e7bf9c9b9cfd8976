"""Mutated configs: each is accepted, or refused with a place for every problem, and quickly.

python tests/reliability/fuzz_configs.py --count 20000 --seed 0
"""

from __future__ import annotations

import argparse
import copy
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from empo_core import Component, Config, ConfigPath
from empo_core.config import AggregatorRef, HumanPriorRef
from empo_core.config.files import load_config
from empo_core.config.yaml import dump_yaml
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_testing.processor_time import timed

MAX_SECONDS = 1.0


class AggregatorParams(Config):
    """A nested component."""

    reduction: Literal["sum", "mean"] = "sum"
    scale: float = Field(1.0, gt=0)


class PriorParams(Config):
    """A component that may hold one of its own kind."""

    beta: float | Literal["inf"] = 1.0
    habit: HumanPriorRef | None = None


class Piece(Config):
    """A part of a list."""

    name: str = Field(min_length=1)
    at: list[int] = Field(min_length=2, max_length=2)


class SolveParams(Config):
    """Fields of every sort, and both sorts of model validators."""

    preset: Literal["paper", "neutral"] | None = None
    beta: float = Field(1.0, gt=0, le=1e6)
    steps: int = Field(5, ge=1)
    flag: bool = False
    prior: HumanPriorRef | None = None
    aggregator: AggregatorRef | None = None
    per_goal: float | dict[str, float] = 1.0
    by_index: dict[int, list[float]] = Field(default_factory=dict)
    pieces: list[Piece] = Field(default_factory=list)
    folder: ConfigPath | None = None

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset") == "paper":
            return {"beta": 2.0} | data
        return data

    @model_validator(mode="after")
    def _fits(self) -> SolveParams:
        if self.flag and self.steps == 1:
            raise ValueError("flag needs steps > 1")
        return self


class WorldParams(Config):
    """A world."""

    file: ConfigPath
    max_steps: int | None = Field(None, ge=1)


VALID: list[dict[str, Any]] = [
    {"algorithm": "solve"},
    {
        "world_model": {"name": "grid", "params": {"file": "a/b.yaml", "max_steps": 5}},
        "algorithm": {
            "name": "solve",
            "params": {
                "preset": "paper",
                "beta": 10.0,
                "prior": {"name": "soft", "params": {"beta": "inf", "habit": "soft"}},
                "aggregator": {"name": "scatter-add", "params": {"reduction": "mean"}},
                "per_goal": {"a": 1, "b": 2.5},
                "by_index": {0: [1, 2], 3: []},
                "pieces": [{"name": "door", "at": [1, 2]}, {"name": "key", "at": [3, 4]}],
                "folder": "x",
            },
        },
        "trackers": ["csv", {"name": "csv", "params": {"scale": 2}}],
        "seed": 3,
        "runs": "out",
    },
    {"world_model": {"name": "grid", "params": {"file": "w.yaml"}}, "algorithm": {"name": "solve"}},
]
OVERRIDES = [
    "seed=4", "algorithm.params.beta=1e-3", "algorithm.params.prior.params.beta=2",
    "trackers.0.params.scale=3", "trackers=[csv]", "world_model=null",
    "algorithm.params.pieces.1.at.0=9", "algorithm.params.per_goal={c: 1}",
]  # fmt: skip
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**70, 1e400, float("-inf"), float("nan"), 0.5, "", " ", "no",
    "1e-3", "solve", "slove", "csv", "a/b", "grid/none", "\x1b[31m", "é\u2028", "\ud7ff", [], {},
    [[]], {"name": "solve"}, {"params": {}}, {"name": {"name": []}}, ["x", 1], {1: 2}, {"": ""},
]  # fmt: skip
SNIPPETS = [
    b"{", b"}", b"[", b"]", b":", b": ", b"- ", b"? ", b"&a ", b"*a", b"!!str ", b"!x ", b"| ",
    b">-\n", b"'", b'"', b"#", b"\t", b"\n", b"\r", b"\x00", b"\xff", b"\xc3", b"---\n", b"...\n",
    b"%YAML 1.1\n", b"<<: ", b"\\U0011FFFF", b"[" * 200, b"{a: " * 200, b"9" * 5000,
    b"\xef\xbb\xbf",
]  # fmt: skip


def registry() -> Registry:
    """A few components with params of every sort."""
    rows: list[tuple[Any, str, type[Config]]] = [
        ("algorithm", "solve", SolveParams),
        ("aggregator", "scatter-add", AggregatorParams),
        ("human_prior", "soft", PriorParams),
        ("tracker", "csv", AggregatorParams),
        ("world_model", "grid", WorldParams),
    ]
    provider = Provider("fuzz", "1", "fuzz")
    components = [
        Component(kind=kind, name=name, params=params, target="no.module:x", api=1)
        for kind, name, params in rows
    ]
    return Registry([Offer(provider, component) for component in components], [provider])


def mutants(seed: int, count: int) -> Iterator[tuple[bytes, list[str]]]:
    """Config files and overrides, most of them wrong in one to three ways."""
    for index in range(count):
        # One generator per case, so that any case can be repeated alone.
        rng = random.Random(f"{seed}-{index}")
        data = copy.deepcopy(rng.choice(VALID))
        structural = rng.random() < 0.6
        for _ in range(rng.randint(1, 3) if structural else 0):
            data = _reshaped(data, rng)
        text = dump_yaml(data).encode("utf-8", "surrogatepass")
        for _ in range(rng.choice([0, 0, 1]) if structural else rng.randint(1, 4)):
            text = _smudged(text, rng)
        overrides = [rng.choice(OVERRIDES) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
        if overrides and rng.random() < 0.5:
            raw = _smudged(overrides[0].encode(), rng)
            overrides[0] = raw.decode("utf-8", "surrogateescape")
        yield text, overrides


def _reshaped(data: Any, rng: random.Random) -> Any:
    """The data with one place deleted, renamed, replaced or wrapped."""
    places = list(_places(data)) if isinstance(data, dict | list) else []
    if not places or rng.random() < 0.02:
        return rng.choice(ODD)
    holder, key = rng.choice(places)
    action = rng.randrange(5)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        word = str(key)
        spot = rng.randrange(len(word) + 1)
        holder[word[:spot] + rng.choice("abx_- .é") + word[spot + 1 :]] = holder.pop(key)
    elif action == 2:
        holder[key] = rng.choice([[holder[key]], {"name": holder[key]}, {"params": holder[key]}])
    elif action == 3 and isinstance(holder, dict):
        holder[rng.choice(["world", "name", "params", "extra", 7])] = copy.deepcopy(holder[key])
    else:
        holder[key] = copy.deepcopy(rng.choice(ODD))
    return data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(items):
        yield data, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _smudged(text: bytes, rng: random.Random) -> bytes:
    """The text with a byte changed, a piece cut, repeated, or something odd put in."""
    spot = rng.randrange(len(text) + 1)
    end = min(len(text), spot + rng.randint(1, 12))
    action = rng.randrange(5)
    if action == 0 and spot < len(text):
        return text[:spot] + bytes([text[spot] ^ (1 << rng.randrange(8))]) + text[spot + 1 :]
    if action == 1:
        return text[:spot] + text[end:]
    if action == 2:
        return text[:end] + text[spot:]
    if action == 3:
        lines = text.splitlines(keepends=True) or [b""]
        rng.shuffle(lines)
        return b"".join(lines)
    return text[:spot] + rng.choice(SNIPPETS) + text[spot:]


def verdict(path: Path, overrides: list[str], table: Registry) -> str:
    """``accepted`` or ``refused``, or what is wrong with how a config was judged."""
    try:
        load_config(path, overrides, table)
        outcome = "accepted"
    except ConfigError as error:
        outcome = complaint(str(error), path) or "refused"
    except BaseException:
        return traceback.format_exc()
    return outcome


def complaint(message: str, path: Path) -> str:
    """First defect of an error message; empty if every line has a place and the count is right."""
    *lines, last = message.splitlines()
    place = rf"({re.escape(str(path))}:[1-9]\d*:[1-9]\d*|command line): \S"
    for line in lines:
        if not re.match(place, line):
            return f"no place in: {line!r}"
        if not line.isprintable():
            return f"control characters in: {line!r}"
        # How a bug in our own validators would show.
        if "a validator raises" in line or "a validator calls" in line:
            return f"a bug: {line}"
    plural = "" if len(lines) == 1 else "s"
    if not lines or last != f"{len(lines)} error{plural}; nothing was run":
        return f"wrong count: {last!r} after {len(lines)} lines"
    return ""


def fuzz(count: int, seed: int, folder: Path) -> tuple[Counter[str], list[str], float]:
    """Judge ``count`` mutants; the tally, a description of every failure, most CPU seconds."""
    table, path = registry(), folder / "config.yaml"
    tally: Counter[str] = Counter()
    failures, slowest = [], 0.0
    for index, (text, overrides) in enumerate(mutants(seed, count)):
        path.write_bytes(text)
        outcome, seconds = timed(partial(verdict, path, overrides, table), MAX_SECONDS)
        slowest = max(slowest, seconds)
        if seconds > MAX_SECONDS:
            outcome = f"took {seconds:.1f} CPU s; {outcome}"
        if outcome in ("accepted", "refused"):
            tally[outcome] += 1
        else:
            tally["failed"] += 1
            failures.append(f"case {index}: {outcome}\n  {text!r} {overrides!r}")
    return tally, failures, slowest


def main() -> int:
    """Fuzz and report; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally, failures, slowest = fuzz(arguments.count, arguments.seed, Path(folder))
    for failure in failures[:20]:
        print(failure)
    seconds = time.monotonic() - started
    print(
        f"{dict(tally)} in {seconds:.0f} s, slowest {slowest:.2f} CPU s, {len(failures)} failures"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
