"""Damage to files of runs: bytes, values, headers, and whole files; some is sealed afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_configs import _places, _smudged

from empo_core.runs.atomic import digest

CANARY = "executed"
"""A file that is there if code in a file was run."""


class Payload:
    """What makes a file if it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        import os

        return os.system, (f"touch {CANARY}",)


def _objects() -> bytes:
    """An array of Python objects, which NumPy unpickles if it is allowed to."""
    file = io.BytesIO()
    np.save(file, np.array([Payload()], dtype=object), allow_pickle=True)
    return file.getvalue()


WHOLE = [
    b"", b"\0" * 100, b"null", b"[]", b"{}", b"0", b'"x"', b"[" * 100_000, b'{"a":' * 50_000,
    b"9" * 100_000, b"1e999", b"NaN", b"\xff\xfe{}", b"\xef\xbb\xbf{}", pickle.dumps(Payload()),
    _objects(), struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 2**27) + b"{}",
    b"\x93NUMPY\x01\x00\xff\xff", f"!!python/object/apply:os.system ['touch {CANARY}']".encode(),
]  # fmt: skip
"""What may stand in place of a whole file."""
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.5, 1e308,
    1e-320, float("nan"), float("inf"), float("-inf"), "", " ", "x", "../../outside", "/outside",
    "\0", "\x1b[31m", "\ud800", "=1+1", "<script>", "x" * 5_000, [], [[]], [0] * 1_000, {}, {"": 0},
    {"name": "exact"}, ["x", 1], {"py/reduce": []}, "finished", "interrupted", "1999-01-01",
]  # fmt: skip
"""What may stand in place of a value."""
SHAPES = ["(0,)", "(-1,)", "(10**12,)", "(2**40, 2**40)", "(3,)", "()", "(1, 1, 1, 1)", "None"]
TYPES = ["|O", "<f8", "<i8", ">f8", "|b1", "|V100000000", "<U9999999", "<f2", "|S0", "<M8[ns]"]


def damage(path: Path, rng: random.Random) -> str:
    """Damage a file in one to three places, and say how.

    Where a manifest seals it, the manifest is made to fit in half of the cases.
    """
    raw, said = path.read_bytes(), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        raw, how = _damaged(path.suffix, raw, rng)
        said.append(how)
    is_sealed = rng.random() < 0.5
    if is_sealed:
        raw = _sealed(raw)
    path.write_bytes(raw)
    if is_sealed and _fit_manifest(path):
        said.append("sealed")
    return f"{path.name}: {', '.join(said)}"


def _damaged(suffix: str, raw: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Damaged bytes, and how."""
    chance = rng.random()
    if chance < 0.03:
        number = rng.randrange(len(WHOLE))
        return WHOLE[number], f"whole {number}"
    if chance < 0.7:
        try:
            if suffix in (".json", ".yaml"):
                return _changed_json(raw, rng)
            if suffix == ".jsonl":
                return _changed_line(raw, rng)
            if suffix == ".npy" and chance < 0.4:
                return _changed_array_header(raw, rng)
            if suffix == ".npy":
                return _changed_items(raw, rng)
            if suffix == ".safetensors":
                return _changed_tensor_header(raw, rng)
        except Exception:  # It is so damaged already that nothing but its bytes can be changed.
            return _smudged(raw, rng), "bytes"
    if chance < 0.8:
        end = rng.randrange(len(raw) + 1)
        return raw[:end], f"cut at {end}"
    if len(raw) > 2**16 and chance < 0.95:  # Far into a large file.
        spot = rng.randrange(len(raw) - 2**12)
        part = _smudged(raw[spot : spot + 2**12], rng)
        return raw[:spot] + part + raw[spot + 2**12 :], f"bytes near {spot}"
    return _smudged(raw, rng), "bytes"


def _changed_json(raw: bytes, rng: random.Random) -> tuple[bytes, str]:
    data = json.loads(raw)
    places = list(_places(data)) if isinstance(data, dict | list) else []
    if not places:
        raise ValueError("nothing in it")
    holder, key = rng.choice(places)
    how = _change(holder, key, rng)
    return json.dumps(data, indent=1).encode("utf-8", "surrogatepass"), f"{key!r} {how}"[:200]


def _change(holder: Any, key: Any, rng: random.Random) -> str:
    """Change one value of a dictionary or a list; how."""
    value, action = holder[key], rng.randrange(6)
    if action == 0:
        del holder[key]
        return "removed"
    if action == 1 and isinstance(holder, dict):
        holder[rng.choice(["", "x", "format", "body", "__class__", f"{key}2"])] = holder.pop(key)
        return "renamed"
    if action == 2 and isinstance(holder, list):
        holder.insert(0, value)
        return "doubled"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if action in (3, 4) and is_number:
        holder[key] = rng.choice([value + 1, value - 1, -value, value * 1000, value / 3])
    elif action == 3 and isinstance(value, str) and value:
        spot = rng.randrange(len(value))
        holder[key] = value[:spot] + rng.choice(["", "x", "0", "/"]) + value[spot + 1 :]
    else:
        holder[key] = rng.choice(ODD)
    return f"is {holder[key]!r:.80}"


def _changed_line(raw: bytes, rng: random.Random) -> tuple[bytes, str]:
    lines = raw.splitlines()
    number = rng.randrange(len(lines))
    lines[number], how = _changed_json(lines[number], rng)
    lines[number] = lines[number].replace(b"\n", b"")
    return b"\n".join([*lines, b""]), f"line {number}: {how}"


def _changed_array_header(raw: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Another shape or type."""
    (size,) = struct.unpack("<H", raw[8:10])
    header = _header(raw[10 : 10 + size])
    if rng.random() < 0.5:
        header["shape"] = rng.choice(SHAPES)
    else:
        header["descr"] = repr(rng.choice(TYPES))
    text = "{" + ", ".join(f"{key!r}: {value}" for key, value in header.items()) + "}"
    body = raw[10 + size :] if rng.random() < 0.7 else pickle.dumps(Payload())
    encoded = text.encode().ljust(size - 1) + b"\n"
    return raw[:8] + struct.pack("<H", len(encoded)) + encoded + body, f"header {text}"


def _header(raw: bytes) -> dict[str, str]:
    """The header of an array, with the spelling of its values."""
    import ast

    return {key: repr(value) for key, value in ast.literal_eval(raw.decode().strip()).items()}


def _changed_items(raw: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Other numbers, so that the file is a good one."""
    array = np.load(io.BytesIO(raw), allow_pickle=False)
    if not array.size:
        raise ValueError("nothing in it")
    flat = array.reshape(-1)
    spot = rng.randrange(flat.size)
    with np.errstate(all="ignore"):
        if array.dtype.kind == "f":
            flat[spot] = rng.choice([np.nan, np.inf, -1.0, 0.0, 2.0, 1e300, -np.inf])
        else:
            bounds = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
            low, high = (0, 1) if bounds is None else (bounds.min, bounds.max)
            flat[spot] = rng.choice([low, high, 0, 1])
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue(), f"item {spot} is {flat[spot]}"


def _changed_tensor_header(raw: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Another name, shape, type or place of a tensor."""
    (size,) = struct.unpack("<Q", raw[:8])
    header, how = _changed_json(raw[8 : 8 + size], rng)
    header = json.dumps(json.loads(header)).encode()
    length = len(header) if rng.random() < 0.9 else rng.choice([0, 2**40, size])
    return struct.pack("<Q", length) + header + raw[8 + size :], how


def _sealed(raw: bytes) -> bytes:
    """The bytes, with a fitting sum where they are data with one."""
    try:
        data = json.loads(raw)
        data["sha256"] = digest(data["body"])
        return json.dumps(data, indent=1, sort_keys=True).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return raw


def _fit_manifest(path: Path) -> bool:
    """Have the manifest beside a file describe it as it is; False where none does."""
    manifest = path.with_name("manifest.json")
    if path == manifest or not manifest.exists():
        return False
    raw, data = path.read_bytes(), json.loads(manifest.read_bytes())
    entries = data["body"].get("files") or data["body"].get("arrays") or {}
    entry = entries.get(path.name) or entries.get(path.stem)
    if not isinstance(entry, dict):
        return False
    entry |= {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    if path.suffix == ".npy":
        with contextlib.suppress(Exception):  # NumPy raises a dozen kinds.
            array = np.load(io.BytesIO(raw), allow_pickle=False)
            entry |= {"dtype": array.dtype.str, "shape": list(array.shape)}
    manifest.write_bytes(_sealed(json.dumps(data).encode()))
    return True
