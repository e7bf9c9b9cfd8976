"""Milliseconds that a page with some 50,000 states takes to react, in a browser.

Run ``python tests/benchmarks/bench_page.py [--megabytes 20] [--keep FOLDER]``: a room of 7 x 5
cells with a key is solved, its page written and opened, and one action after
the other done in it. ``work`` is the time that an action keeps the page busy at once, ``frame``
the longest time between two frames from then until everything is worked out, and ``task`` the
processor time of the longest piece of work in between, which other programs do not lengthen.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_exact.inspection import inspect
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_inspector.page import write_page
from empo_theory.inspection import InspectionScope

ROOM = """\
metadata: {name: Key room}
map: |
  We We We We We We We
  We Ay .. .. .. .. We
  We .. .. Kr .. .. We
  We Ae .. .. .. .. We
  We We We We We We We
max_steps: 20
possible_goals: ["1,1, 3,3", "4,1, 5,3", "1,1", "5,3"]
"""
REPEATS = 15
ACTIONS = {
    "next step": "() => inspector.move(inspector.t < 15 ? 1 : -15)",
    "another state": "() => inspector.goTo(range(99).map(() => Math.floor(Math.random() * m.S))"
    ".find((s) => m.goesOn(s)), 12)",
    "heat map": "() => inspector.select({map: inspector.map === 'v_e' ? 'v_m' : 'v_e'})",
    "Robots": "() => inspector.select({view: 'robot'})",
    "Successors": "() => inspector.select({view: 'next'})",
    "Why?": "() => {inspector.goTo(inspector.start, 0, false); inspector.select({view: 'why'});}",
    "Human": "() => inspector.select({view: 'human'})",
    "Find": "() => inspector.select({view: 'find'})",
    "Find nothing": "() => inspector.select({search: {goal: -1, text: 'nothing'}})",
    "what if": "() => {inspector.view = 'robot'; inspector.assume({beta_r: Math.random() * 9});}",
    "About": "() => inspector.select({view: 'about'})",
}
TIMED = """async ([source]) => {
  const act = eval(source), frames = [];
  let last = performance.now(), ends = false;
  const frame = (now) => {
    frames.push(now - last);
    last = now;
    if (!ends) requestAnimationFrame(frame);
  };
  await new Promise(requestAnimationFrame);
  last = performance.now();
  requestAnimationFrame(frame);
  const begin = performance.now();
  act();
  const work = performance.now() - begin;
  while (document.querySelector("[data-busy]")) await new Promise((done) => setTimeout(done, 5));
  const all = performance.now() - begin;
  await new Promise(requestAnimationFrame);
  ends = true;
  return [work, Math.max(...frames), all];
}"""


def page_of(folder: Path, megabytes: float) -> Path:
    """The page of the solved room."""
    (folder / "room.yaml").write_text(ROOM)
    params = {"file": str(folder / "room.yaml")}
    world = build(WorldModelRef.model_validate({"name": "multigrid", "params": params}))
    begin = time.perf_counter()
    result = solve(world, ExactParams.model_validate({"keep": "all"}))
    print(f"{result.graph.num_states:,} states, {result.graph.num_transitions:,} transitions")
    wanted, file = InspectionScope(max_bytes=int(megabytes * 1e6)), folder / "inspector.html"
    inspection = inspect(result, result.params.theory, wanted)
    write_page(inspection, world, folder, file, wanted)
    size, seconds = file.stat().st_size / 1e6, time.perf_counter() - begin
    print(f"{inspection.num_states:,} states kept, page {size:.1f} MB, {seconds:.0f} s")
    return file


def longest_task(trace: bytes) -> float:
    """Processor time of the longest task of the page's main thread, in milliseconds."""
    events = json.loads(trace)["traceEvents"]
    names = (event for event in events if event["name"] == "thread_name")
    main = {
        (event["pid"], event["tid"]) for event in names if event["args"]["name"] == "CrRendererMain"
    }
    return max(
        event.get("tdur", 0) / 1000
        for event in events
        if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in main
    )


def measure(browser: Browser, tab: Page) -> None:
    """Print what each action takes, median and worst."""
    heads = ("work ms", "frame ms", "until done ms", "task ms")
    print(f"{'action':<14} " + " ".join(f"{head:>16}" for head in heads))
    for name, source in ACTIONS.items():
        times = []
        for _ in range(REPEATS):
            browser.start_tracing(page=tab, categories=["toplevel"])
            found = tab.evaluate(TIMED, [source])
            times.append([*found, longest_task(browser.stop_tracing())])
        columns = zip(*times, strict=True)
        told = (f"{statistics.median(column):7.1f} {max(column):7.1f}" for column in columns)
        print(f"{name:<14} {'  '.join(told)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--keep", type=Path, help="Use the page in this folder, or leave it there.")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "inspector.html"
    if not file.exists():
        page_of(folder, options.megabytes)
    with sync_playwright() as driver:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        # The measurements need eval, which the page's own policy forbids.
        tab = browser.new_context(bypass_csp=True).new_page()
        begin = time.perf_counter()
        tab.goto(file.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        seconds = time.perf_counter() - begin
        heap = tab.evaluate("() => performance.memory.usedJSHeapSize") / 1e6
        print(f"ready after {seconds:.1f} s, heap {heap:.0f} MB")
        measure(browser, tab)
        browser.close()


if __name__ == "__main__":
    main()
