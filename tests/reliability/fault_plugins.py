"""Plugins: two hundred at once, broken in every way that tests know, heavy, and hanging."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from fault_children import Ended, spawn
from fault_kinds import Trial

UNIT = Path(__file__).parents[1] / "unit"
MANY = 200
MOST_MORE_CPU_S = 0.5
MOST_SECONDS = 20
"""Seconds until Ctrl-C has ended a command that waits for a plugin; an idle machine needs one."""
TORCH = "import torch\ntorch.set_default_dtype(torch.float64)\n"
WAIT = "import time\nopen('waits', 'w').close()\ntime.sleep(600)\n"


def trials(count: int, seed: int, place: Path) -> Iterator[Trial]:
    """Every case; those that are measured, ``count`` times."""
    sys.path.insert(0, str(UNIT))
    from test_plugins import BAD, BROKEN_METADATA, plugin  # type: ignore[import-not-found]

    place.mkdir(parents=True)
    yield _many(count, place / "many", plugin)
    for number, (how, (source, problem)) in enumerate(BAD.items()):
        folder = place / f"bad-{number}"
        install(folder, "empo-good", plugin("good"))
        install(folder, "empo-bad", source)
        yield Trial(f"a plugin that {how}", _broken(folder, problem))
    for number, (how, files) in enumerate(BROKEN_METADATA.items()):
        folder = place / f"metadata-{number}"
        install(folder, "empo-good", plugin("good"))
        info = install(folder, "empo-bad", plugin("bad"))
        for name, content in files.items():
            (info / name).unlink()
            if content is not None:
                (info / name).write_bytes(content)
        yield Trial(f"a distribution that {how}", _broken(folder, ".*"))
    yield Trial("a heavy plugin", _heavy(place / "heavy", plugin("good"), plugin("heavy")))
    for what, source in {"import": WAIT, "hook": _waiting_hook(plugin("bad"))}.items():
        yield Trial(f"Ctrl-C in a {what} that hangs", _hanging(place / f"hangs-{what}", source))


def install(folder: Path, name: str, source: str) -> Path:
    """Install a plugin in a folder; its metadata."""
    module = name.replace("-", "_")
    info = folder / f"{module}-1.2.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[empo]\n{name} = {module}\n")
    return info


def _environment(folder: Path) -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key != "EMPO_BLOCK_PLUGINS"}
    return environment | {"PYTHONPATH": str(folder)}


def _empo(folder: Path, *arguments: str) -> Ended:
    folder.mkdir(parents=True, exist_ok=True)
    return spawn(folder, *arguments, environment=_environment(folder)).end()


def _rows(ended: Ended) -> dict[str, Mapping[str, object]]:
    """Rows of ``empo plugins --json`` by distribution."""
    start = min(place for sign in "[{" if (place := ended.output.find(sign)) >= 0)
    data, _ = json.JSONDecoder().raw_decode(ended.output[start:])
    listed = data if isinstance(data, list) else data["plugins"]
    return {str(row["distribution"]): row for row in listed}


def _many(count: int, folder: Path, plugin: object) -> Trial:
    """How much more a command takes that has to look at two hundred plugins."""
    assert callable(plugin)
    for number in range(MANY):
        install(folder, f"empo-many-{number}", plugin(f"many-{number}"))
    without, beside = [], []
    for attempt in range(count + 1):  # The first compiles their modules.
        ended = [_empo(folder.parent / "none", "plugins"), _empo(folder, "plugins")]
        if attempt:
            without.append(ended[0].cpu_s)
            beside.append(ended[1].cpu_s)
        if problem := next((each.fault for each in ended if each.fault), ""):
            return Trial(f"{MANY} plugins", problem)
    more = statistics.median(beside) - statistics.median(without)
    problem = f"{more:.2f} CPU s more" if more > MOST_MORE_CPU_S else ""
    print(f"plugins: {MANY} of them take {more:.2f} CPU s more than none", flush=True)
    return Trial(f"{MANY} plugins", problem)


def _broken(folder: Path, problem: str) -> str:
    """What is wrong with how commands work beside a broken plugin; empty: nothing."""
    ended = _empo(folder, "plugins", "--json")
    if ended.fault or ended.code:
        return ended.fault or f"exit code {ended.code}: {ended.output[-500:]}"
    rows = _rows(ended)
    if rows["empo-good"]["problem"]:
        return f"the good one: {rows['empo-good']}"
    bad = [row for name, row in rows.items() if name.startswith("empo-bad")]
    if len(bad) != 1 or not re.fullmatch(problem, str(bad[0]["problem"])) or not bad[0]["problem"]:
        return f"it is listed as {bad}"
    strict = _empo(folder, "--strict-plugins", "describe", "aggregator", "good")
    if strict.fault or strict.code not in (2, 3) or "empo-bad" not in strict.output:
        return f"--strict-plugins ends with {strict.code}: {strict.output[-500:]}"
    return ""


def _heavy(folder: Path, good: str, heavy: str) -> str:
    """A plugin that imports torch is listed as one that does."""
    install(folder, "empo-good", good)
    install(folder, "empo-heavy", TORCH + heavy)
    ended = _empo(folder, "plugins", "--json")
    if ended.fault or ended.code:
        return ended.fault or f"exit code {ended.code}"
    row = _rows(ended)["empo-heavy"]
    return "" if "torch" in json.dumps(row).replace("empo-heavy", "") else f"it is listed as {row}"


def _waiting_hook(source: str) -> str:
    head = "def empo_components():\n"
    return source.replace(head, head + textwrap.indent(WAIT, "    "))


def _hanging(folder: Path, source: str) -> str:
    """Ctrl-C ends a command while a plugin hangs, and the message names it."""
    install(folder, "empo-bad", source)
    child = spawn(folder, "plugins", environment=_environment(folder))
    deadline = time.monotonic() + 120
    while not (folder / "waits").exists():
        if child.is_over() or time.monotonic() > deadline:
            return f"did not begin: {child.end().output[-500:]}"
        time.sleep(0.02)
    child.send(signal.SIGINT)
    ended = child.end(MOST_SECONDS)
    if ended.code != 130 or ended.fault or "empo-bad" not in ended.output:
        return f"exit code {ended.code}: {ended.output[-500:]}"
    return ""
