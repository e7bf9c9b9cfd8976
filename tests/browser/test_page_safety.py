"""Pages ask for nothing, run nothing that a name says, and say what is wrong with their data."""

from __future__ import annotations

import base64
import re
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import Learned, Open, Solved, solved_page, world_of

from empo_exact.plugin import ExactParams
from empo_inspector.page import write_page
from empo_theory.inspection import InspectionScope

VIEWS = ("robot", "next", "why", "human", "find", "play", "about")
TEXT = "() => document.body.innerText"


def test_a_page_opens_in_silence_and_asks_for_nothing(open_page: Open, solved: Solved) -> None:
    opened = open_page(solved.file)
    for view in VIEWS:
        opened.show(view=view)
    assert opened.said == []
    assert opened.requests == [solved.file.as_uri()]


@pytest.mark.slow
def test_a_page_says_the_same_each_time(open_page: Open, free_the_human: Solved) -> None:
    """Also once it is written again."""

    def texts() -> list[str]:
        opened, found = open_page(free_the_human.file), []
        for view in VIEWS:
            opened.show(view=view)
            found.append(opened.ask(TEXT))
        return found

    before, first = free_the_human.file.read_bytes(), texts()
    assert texts() == first
    world, directory = free_the_human.result.problem.world, free_the_human.file.parent
    write_page(free_the_human.inspection, world, directory, free_the_human.file, InspectionScope())
    assert free_the_human.file.read_bytes() == before
    assert texts() == first


HOSTILE = (
    "<img src=x onerror=globalThis.canary=1>",
    "</script><script>globalThis.canary=1</script>",
    "javascript:globalThis.canary=1",
    "\u001b[31mred\u001b[0m",
    "\u202eright to left",
    "x" * 10_000,
)


def hostile_world(directory: Path) -> Path:
    quoted = [json_text(name) for name in HOSTILE]
    goals = ", ".join(f"{{name: {name}, states: [here, there]}}" for name in quoted)
    file = directory / "hostile.yaml"
    file.write_text(
        f"{{name: {quoted[1]}, horizon: 2, initial: here, states: [here, there],\n"
        f" agents: [{{name: {quoted[0]}, role: human, actions: [{quoted[1]}, {quoted[2]}]}},\n"
        f"  {{name: {quoted[3]}, role: robot, actions: [{quoted[4]}, {quoted[0]}]}}],\n"
        ' transitions: [{state: "*", to: {here: 1/2, there: 1/2}}],\n'
        f" goals: {{{quoted[0]}: [{goals}]}}}}\n",
        "utf-8",
    )
    return file


def json_text(name: str) -> str:
    import json

    return json.dumps(name)


def test_names_are_text_whatever_they_say(open_page: Open, tmp_path: Path) -> None:
    world = world_of("table", file=hostile_world(tmp_path))
    page = solved_page(world, ExactParams.model_validate({"keep": "all"}), tmp_path)
    opened = open_page(page.file)
    for view in VIEWS:
        opened.show(view=view)
        assert opened.ask("() => globalThis.canary === undefined")
        assert opened.ask("() => document.images.length + document.links.length") == 0
        assert opened.ask("() => document.documentElement.scrollWidth <= innerWidth")
    assert opened.said == []
    assert len(opened.requests) == 1


def test_nothing_injected_runs(open_page: Open, free_the_human: Solved, tmp_path: Path) -> None:
    text = free_the_human.file.read_text("utf-8")
    planted = tmp_path / "planted.html"
    planted.write_text(
        text.replace("<body>", "<body><script>globalThis.canary = 1</script>"), "utf-8"
    )
    opened = open_page(planted)
    assert opened.ask("() => globalThis.canary === undefined")
    assert "Content Security Policy" in opened.said[0]


def raw(packed: bytes) -> bytes:
    return zlib.decompress(packed)


def larger(packed: bytes) -> bytes:
    """A container in which the first array claims 2**31 rows."""
    whole = raw(packed)
    (length,) = struct.unpack_from("<I", whole, 12)
    header = re.sub(rb'"shape":\[\d+', b'"shape":[2147483648', whole[16 : 16 + length], count=1)
    rest = whole[16 + length + -length % 8 :]
    start = whole[:12] + struct.pack("<I", len(header)) + header + bytes(-len(header) % 8)
    return zlib.compress(start + rest)


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a flipped byte": (lambda data: data[:500] + bytes([data[500] ^ 255]) + data[501:], "changed"),
    "a cut": (lambda data: data[:-1000], "cut"),
    "another version": (
        lambda data: zlib.compress(raw(data)[:8] + b"\x02\0\0\0" + raw(data)[12:]),
        "version 2",
    ),
    "a huge shape": (larger, "does not fit"),
    "something else": (lambda _: zlib.compress(b"x" * 100), "EMPOVIEW"),
    "nothing": (lambda _: b"", "decompressed"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_data_are_one_readable_line(
    open_page: Open, free_the_human: Solved, tmp_path: Path, damage: str
) -> None:
    change, says = DAMAGES[damage]
    text = free_the_human.file.read_text("utf-8")
    found = re.search(r'id="data">([^<]*)<', text)
    assert found is not None
    changed = base64.b64encode(change(base64.b64decode(found[1]))).decode()
    file = tmp_path / "damaged.html"
    file.write_text(text.replace(found[1], changed), "utf-8")
    opened = open_page(file)
    said = opened.ask(TEXT)
    assert "cannot show its data" in said
    assert says in said
    assert "\n" not in said.strip()


@pytest.mark.parametrize(
    "width",
    [320, pytest.param(400, marks=pytest.mark.slow), pytest.param(1280, marks=pytest.mark.slow)],
)
def test_a_page_never_scrolls_sideways(open_page: Open, solved: Solved, width: int) -> None:
    opened = open_page(solved.file, viewport={"width": width, "height": 800})
    for view in VIEWS:
        opened.show(view=view)
        assert opened.ask("() => document.documentElement.scrollWidth") <= width


CUT = """() => [...document.querySelectorAll(".wide")]
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.ariaLabel)"""


@pytest.mark.parametrize("width", [400, pytest.param(1280, marks=pytest.mark.slow)])
def test_no_column_of_a_table_is_cut(
    open_page: Open, free_the_human: Solved, learned: Learned, width: int
) -> None:
    for file in (free_the_human.file, learned.file):
        opened = open_page(file, viewport={"width": width, "height": 800})
        opened.ask("() => inspector.assume({beta_r: 2})")
        for view in VIEWS:
            opened.show(view=view)
            assert opened.ask(CUT) == []


def test_every_control_can_be_reached_and_has_a_name(
    open_page: Open, free_the_human: Solved
) -> None:
    nameless = """() => [...document.querySelectorAll("button, input, select, textarea, canvas")]
      .filter((each) => each.checkVisibility()).filter((each) => !(each.textContent.trim()
        || each.getAttribute("aria-label") || each.labels?.length)).map((each) => each.outerHTML)"""
    opened = open_page(free_the_human.file)
    for view in VIEWS:
        opened.show(view=view)
        assert opened.ask(nameless) == []
    opened.tab.keyboard.press("Tab")
    assert opened.ask("() => document.activeElement.tagName") != "BODY"


def test_dark_and_printed_pages_are_not_empty(open_page: Open, free_the_human: Solved) -> None:
    dark = open_page(free_the_human.file, color_scheme="dark")
    light = open_page(free_the_human.file, color_scheme="light")
    assert dark.tab.screenshot() != light.tab.screenshot()
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert dark.ask(ground) != light.ask(ground)
    assert len(light.tab.pdf()) > 10_000


def test_without_scripts_the_start_is_told(open_page: Open, chromium: Any, solved: Solved) -> None:
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(solved.file.as_uri())
    said = tab.inner_text("noscript")
    assert all(f"{name}: 0." in said for name in solved.result.spec.robot_action_names)
    context.close()


@pytest.mark.slow
def test_20_megabytes_are_ready_within_seconds(open_page: Open, tmp_path: Path) -> None:
    """Of arrays before they are compressed, which is what ``--max-mb`` limits."""
    params = ExactParams.model_validate({"preset": "paper", "keep": "all"})
    world = world_of("multigrid/free_the_human", max_steps=60)
    page = solved_page(world, params, tmp_path, max_bytes=20_000_000)
    begin = time.perf_counter()
    opened = open_page(page.file)
    seconds = time.perf_counter() - begin
    heap = opened.ask("() => performance.memory.usedJSHeapSize")
    print(f"{seconds:.1f} s, {heap / 1e6:.0f} MB, {page.file.stat().st_size / 1e6:.1f} MB")
    assert heap <= 500e6
