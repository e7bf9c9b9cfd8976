"""Every check: ``nox`` runs the quick ones, ``nox -l`` lists them all."""

from __future__ import annotations

import os
import re
import shutil
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
def faults(session: nox.Session) -> None:
    """Hard use, in half an hour: runs killed, interrupted, poisoned and starved, in one table."""
    session.install(*DEV)
    session.run("python", "tests/reliability/faults.py", *session.posargs)


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
def release(session: nox.Session) -> None:
    """Sdists and wheels of every distribution, checked and used elsewhere; nothing is uploaded."""
    session.install("build", "check-wheel-contents", "hatchling", "twine")
    if session.run("git", "status", "--porcelain", external=True, silent=True):
        session.error("the working tree has changes; commit them, since what is built is a commit")
    tree, files = _fresh(session, "tree"), _fresh(session, "dist")
    session.run("git", "clone", "--quiet", str(ROOT), str(tree), external=True)
    version, repository = _version(session), _repository(session)
    for folder in (tree, tree / "distribution", *(tree / "plugins" / name for name in PLUGINS)):
        project = folder / "pyproject.toml"
        text, count = re.subn(
            r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text()
        )
        assert count == 1, project
        if folder == tree:
            module = tree / "empo_core/__init__.py"
            line = f'__version__ = "{version}"'
            module.write_text(re.sub(r'(?m)^__version__ = ".*"$', line, module.read_text()))
        project.write_text(text.replace("[project.urls]\n", f"[project.urls]\n{repository}", 1))
        if folder != tree:
            shutil.copy(tree / "LICENSE", folder)
        session.run(
            "python", "-m", "build", "--no-isolation", "-o", str(files), str(folder), silent=True
        )
    built = sorted(map(str, files.iterdir()))
    session.run("twine", "check", "--strict", *built)
    session.run(
        "check-wheel-contents", "--ignore=W007,W008", *(p for p in built if p.endswith(".whl"))
    )
    _use(session, files, version)
    session.log(f"{len(built)} files of version {version} in {files}")


def _fresh(session: nox.Session, name: str) -> Path:
    """A folder of the session that is not there yet."""
    folder = Path(session.create_tmp()).resolve() / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def _version(session: nox.Session) -> str:
    """The version of the commit's tag ``vVERSION``; without one, that of the core."""
    found = session.run(
        *("git", "tag", "--points-at", "HEAD", "--list", "v*"), external=True, silent=True
    )
    if tags := str(found).split():
        return tags[0].removeprefix("v")
    session.warn("the commit has no tag vVERSION; this is a rehearsal")
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def _repository(session: nox.Session) -> str:
    """The line of metadata with the address of the repository; empty where none is public."""
    remote = session.run(
        *("git", "config", "--get", "remote.origin.url"),
        external=True,
        silent=True,
        success_codes=[0, 1],
    )
    address = str(remote or "").strip().removesuffix(".git")
    if not address.startswith("https://") or "@" in address:
        session.warn("no remote 'origin' with an https address: the metadata names no repository")
        return ""
    return f'Repository = "{address}"\n'


def _use(session: nox.Session, files: Path, version: str) -> None:
    """Install the wheels into a new environment, and do there what a newcomer does."""
    place = _fresh(session, "elsewhere")
    place.mkdir()
    session.run("python", "-m", "venv", str(place / "venv"))
    python = str(place / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python")
    names = [f"empo[learn,rl,latent]=={version}", f"empo-testing=={version}"]
    wheels = ("--find-links", str(files), "-c", str(ROOT / "constraints.txt"), "torch==2.13.0")
    session.run(python, "-m", "pip", "install", "-q", *wheels, *names, "pytest", external=True)
    with session.chdir(place):
        world = ("multigrid/free_the_human", "algorithm=exact")
        session.run(python, "-P", "-m", "empo_core", "run", *world, external=True)
        new = ("new-plugin", "gentle-robot", "--kind", "world_model")
        session.run(python, "-P", "-m", "empo_core", *new, external=True)
        (plugin,) = place.glob("*gentle*")
        session.run(python, "-m", "pip", "install", "-q", f"{plugin}[testing]", external=True)
        session.run(python, "-P", "-m", "pytest", "-q", str(plugin), external=True)


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
