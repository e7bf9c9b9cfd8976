"""Pages of solved worlds, and a browser of the system to open them; skipped where there is none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from empo_core.experiment import seed_everything
from empo_exact.plugin import ExactParams
from empo_inspector.page import write_page
from empo_phase2.algorithm import Phase2
from empo_phase2.params import Phase2Params
from empo_testing.algorithm import fresh
from empo_theory.inspection import InspectionScope

sys.path.insert(0, str(Path(__file__).parent))

from pages import ENDS_BY_ITSELF, Learned, Open, Opened, Solved, solved_page, world_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
READY_MS = 60_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The system's Chromium, never a downloaded one."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """A function that opens a file in a new window, and waits until it shows its data."""
    contexts = []

    def opened(file: Path, fragment: str = "", **options: Any) -> Opened:
        contexts.append(context := chromium.new_context(**options))
        found = Opened(context.new_page())
        found.tab.on("console", lambda message: found.said.append(message.text))
        found.tab.on("pageerror", lambda error: found.said.append(str(error)))
        found.tab.on("request", lambda request: found.requests.append(request.url))
        found.tab.goto(file.as_uri() + fragment)
        found.tab.wait_for_selector("html[data-ready]", state="attached", timeout=READY_MS)
        return found

    yield opened
    for context in contexts:
        context.close()


WORLDS = {
    "stochastic": ("bushworld/two_humans_one_robot", {}, {"preset": "paper"}),
    "two humans": (
        "multigrid/small_trolley",
        {"max_steps": 5},
        {"preset": "paper", "theory": {"eta": 1.0, "xi": 2.0, "robot_model": "optimistic"}},
    ),
    "presence": (
        "multigrid/two_robots",
        {"max_steps": 3},
        {"preset": "fair", "theory": {"robot_model": "even", "early_end": "absorb"}},
    ),
    "two robots": (
        "multigrid/two_robots",
        {"max_steps": 3},
        {"preset": "reference", "theory": {"nu": 0.2, "beta_h": "inf"}},
    ),
    "durations": ("table/confirmation", {}, {"preset": "reference", "theory": {"gamma_r": 0.9}}),
    "no horizon": ("table", {}, {"theory": {"zeta": 1.7, "beta_r": 3.0, "gamma_h": 0.95}}),
}


SLOW = {"two humans", "durations"}


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in WORLDS
    ],
)
def solved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Solved:
    """Five worlds, in which something else matters each."""
    name, params, theory = WORLDS[request.param]
    directory = tmp_path_factory.mktemp("page")
    if name == "table":
        params = {"file": directory / "stairs.yaml"}
        params["file"].write_text(ENDS_BY_ITSELF, "utf-8")
    exact = ExactParams.model_validate({**theory, "keep": "all"})
    return solved_page(world_of(name, **params), exact, directory)


@pytest.fixture(scope="session")
def free_the_human(tmp_path_factory: pytest.TempPathFactory) -> Solved:
    """The main example, of fewer steps."""
    params = ExactParams.model_validate({"preset": "paper", "keep": "all"})
    world = world_of("multigrid/free_the_human", max_steps=8)
    return solved_page(world, params, tmp_path_factory.mktemp("free"))


LEARNED: dict[str, Any] = {
    "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
    "values": {"q_r": "lookup", "v_h_e": "lookup"},
    "total_steps": 600,
    "warm_up": {"v_h_e": 100, "q_r": 100, "ramp": 100},
    "optimiser": {"lr": 1.0, "target_interval": 5},
    "collector": {"name": "sync", "params": {"min_env_steps": 3000}},
    "reporting": {"compare": "exact", "evaluation_interval": 0},
}


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """A learned run with its page, and exact values beside its own."""
    directory = tmp_path_factory.mktemp("learned")
    context = fresh(world_of("multigrid/trivial", max_steps=5), directory)
    seed_everything(0)
    algorithm = Phase2(Phase2Params.model_validate(LEARNED))
    algorithm.run(context)
    scope, file = InspectionScope(), directory / "inspector.html"
    inspection = algorithm.inspection(context, scope)
    assert context.world is not None
    write_page(inspection, context.world, directory, file, scope)
    return Learned(inspection, file)
