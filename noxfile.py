"""Every check: ``nox`` runs the quick ones, ``nox -l`` lists them all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
PINNED = ("-c", "constraints.txt", "torch==2.13.0")
DEV = ("-r", "requirements-dev.txt")

nox.options.sessions = ["lint", "types", "core", "plugin", "together", "docs"]
nox.options.default_venv_backend = "virtualenv"  # pip, not uv: only pip sees a local CPU wheel.
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True


@nox.session
def lint(session: nox.Session) -> None:
    """Formatting and style."""
    session.install("-c", "constraints.txt", "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Static types and import layers, with everything installed."""
    session.install(*DEV)
    session.run("mypy")
    session.run("python", "tests/quality/import_layers.py")


@nox.session
def core(session: nox.Session) -> None:
    """The core, from its wheel, with the libraries that its tests use: no component at all."""
    session.install(*PINNED, *_wheels("empo_testing"))
    session.run("python", "-P", "-m", "pytest", "tests/unit", *session.posargs)


@nox.session
@nox.parametrize("name", PLUGINS)
def plugin(session: nox.Session, name: str) -> None:
    """One plugin, from wheels, with nothing of ours but what it needs, and the kits."""
    session.install(*PINNED, *_wheels(name, "empo_testing"))
    session.run("python", "-P", "-m", "pytest", f"plugins/{name}/tests", *session.posargs)


@nox.session
def together(session: nox.Session) -> None:
    """Every plugin at once: no duplicate names, and every example runs."""
    session.install(*DEV)
    tests = ("tests/integration", "tests/golden", "tests/reliability")
    session.run("python", "-m", "pytest", *tests, *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Pages in the system's Chromium, e.g. Debian's package ``chromium``."""
    session.install(*DEV)
    chosen = ("-m", "browser", "--override-ini=testpaths=tests/browser")
    session.run("python", "-m", "pytest", *chosen, *session.posargs)


@nox.session
def cluster(session: nox.Session) -> None:
    """The executor for clusters on a simulated one of three nodes."""
    session.install(*DEV, "./plugins/empo_ray")
    tests = "plugins/empo_ray/tests"  # To collect all others takes a minute.
    session.run("python", "-m", "pytest", "-m", "cluster", "-n0", tests, *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """What computes on a CUDA device, where there is one; elsewhere all of it is skipped."""
    session.install(*DEV)
    session.run("python", "-m", "pytest", "-m", "gpu", "-n0", "-rs", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Every page: its links, its code blocks, a page for every protocol; then the site."""
    session.install("-r", "requirements-docs.txt")
    pages = ("tests/integration/test_docs.py", "tests/integration/test_examples.py")
    session.run("python", "-m", "pytest", "-m", "slow or not slow", *pages, *session.posargs)
    session.run("python", "docs/build_site.py")
    session.run("python", "-m", "pytest", "-m", "slow", "tests/browser/test_site.py")


@nox.session
def notebooks(session: nox.Session) -> None:
    """Run the notebooks among the examples, and write their outputs into them."""
    session.install(*DEV)
    session.run("python", "docs/build_notebooks.py", *session.posargs)


@nox.session
def quality(session: nox.Session) -> None:
    """Figures of the source and of a run; some have to be 0, e.g. import circles."""
    session.install(*DEV)
    session.run("python", "tests/quality/figures.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Speed beside its aims and beside peers, in one table."""
    session.install(*DEV, "-r", "tests/benchmarks/requirements-peers.txt")
    session.run("python", "tests/benchmarks/overview.py", *session.posargs)


@nox.session
def bench_all(session: nox.Session) -> None:
    """Every benchmark: speed and memory, as tables of ratios measured in one run."""
    session.install(*DEV, "-r", "tests/benchmarks/requirements-peers.txt")
    for script in sorted(ROOT.glob("tests/benchmarks/bench_*.py")):
        session.run("python", str(script), *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that the quick suite leaves out."""
    session.install(*DEV)
    # Its rules are compared with ours; what it needs besides only draws.
    session.install("--no-deps", "overcooked==0.2.1")
    session.run("python", "-m", "pytest", "-m", "slow", *session.posargs)


def _wheels(*names: str) -> list[str]:
    """Folders of the core, of some plugins, and of all that they need of ours."""
    needed, folders = list(names), ["."]
    while needed:
        name = needed.pop()
        metadata = tomllib.loads((ROOT / "plugins" / name / "pyproject.toml").read_text())
        testing = metadata["project"].get("optional-dependencies", {}).get("testing")
        if (folder := f"./plugins/{name}{'[testing]' if testing else ''}") not in folders:
            folders.append(folder)
            lines = (*metadata["project"]["dependencies"], *(testing or ()))
            ours = [re.split(r"[\[<>=]", line)[0].replace("-", "_") for line in lines]
            needed += [other for other in ours if other in PLUGINS]
    return folders
