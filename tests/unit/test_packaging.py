"""Every plugin of this repository is packaged alike and known to every check."""

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OPTIONAL = {"empo_ray"}  # Of hundreds of MB, for the few who have several machines.
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
LIBRARIES = ("empo-theory",)
"""Foundations that offer no component, command or hook."""
FOUNDATIONS = (
    "empo-theory",
    "empo-pictures",
    "empo-worlds",
    "empo-learning",
    "empo-compare",
    "empo-executors",
    "empo-environments",
    "empo-world-environments",
)
"""Plugins that others may import; each may import those before it."""
EXTENSIONS = {"empo-learned-humans": ("empo-rollout",)}
"""Plugins made of components, and the components that each may import besides."""
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/plugins/*/pyproject.toml"))


def toml(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", line)[0].lower().replace("_", "-") for line in requirements}


def of_our_extras(requirements: list[str]) -> list[str]:
    """What extras of our own distributions bring, e.g. ``empo-worlds[compiling]``."""
    found: list[str] = []
    for line in requirements:
        if match := re.match(r"(empo-[\w-]+)\[([\w,-]+)\]", line):
            extras = toml(ROOT / "plugins" / match[1].replace("-", "_"))["project"]
            for extra in match[2].split(","):
                found += extras["optional-dependencies"][extra]
    return found


def imported(path: Path) -> set[str]:
    """The distributions that a file imports, but for Python's own."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.partition(".")[0])
    renamed = {
        "PIL": "pillow",
        "fpdf": "fpdf2",
        "pydantic_core": "pydantic",
        "pygame": "pygame-ce",
        "ruamel": "ruamel.yaml",
    }
    return {
        renamed.get(name, name.replace("_", "-")) for name in found - set(sys.stdlib_module_names)
    }


@pytest.mark.parametrize("folder", [*PLUGINS, *EXAMPLES], ids=lambda folder: folder.name)
def test_a_plugin_is_packaged_like_the_others(folder: Path) -> None:
    project = toml(folder)["project"]
    distribution = folder.name.replace("_", "-")
    assert project["name"] == distribution
    assert project["license"] == "Apache-2.0"
    offers = {} if distribution in LIBRARIES else {distribution: f"{folder.name}.plugin"}
    assert project.get("entry-points", {}).get("empo", {}) == offers
    assert "empo-core>=0.1,<0.2" in project["dependencies"]
    below = (*FOUNDATIONS, *EXTENSIONS.get(distribution, ()))
    if distribution in FOUNDATIONS:
        below = FOUNDATIONS[: FOUNDATIONS.index(distribution)]
    others = {other.name.replace("_", "-") for other in (*PLUGINS, *EXAMPLES)} - set(below)
    assert not names(project["dependencies"]) & others
    for file in ("README.md", f"src/{folder.name}/py.typed", "tests"):
        assert (folder / file).exists(), file


@pytest.mark.parametrize("folder", [ROOT, ROOT / "distribution", *PLUGINS], ids=str)
def test_an_index_can_say_what_a_distribution_is(folder: Path) -> None:
    project = toml(folder)["project"]
    assert ("empo-plugin" in project["keywords"]) == (folder in PLUGINS)
    assert "Programming Language :: Python :: 3.14" in project["classifiers"]
    assert project["urls"]["Paper"]
    assert project["authors"]


@pytest.mark.parametrize("folder", [*PLUGINS, *EXAMPLES], ids=lambda folder: folder.name)
def test_the_directory_lists_a_plugin_as_its_metadata_does(folder: Path) -> None:
    project = toml(folder)["project"]
    page = ROOT / "docs/plugins.md"
    place = f"[{project['name']}](../{folder.relative_to(ROOT).as_posix()}/README.md) | "
    (row,) = [line for line in page.read_text().splitlines() if line.startswith(f"| {place}")]
    assert row.endswith(f"| {project['description']} |")


@pytest.mark.parametrize("folder", [*PLUGINS, *EXAMPLES], ids=lambda folder: folder.name)
def test_a_plugin_declares_what_it_imports(folder: Path) -> None:
    project = toml(folder)["project"]
    extras = dict(project.get("optional-dependencies", {}))
    extras.pop("testing", None)
    lines = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    declared = names([*lines, *of_our_extras(lines)]) | {folder.name.replace("_", "-")}
    declared |= names(toml(ROOT)["project"]["dependencies"])  # They come with the core.
    for path in (folder / "src").rglob("*.py"):
        assert not imported(path) - declared, path


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
def test_a_plugin_that_uses_kernels_needs_what_compiles_them(folder: Path) -> None:
    kernels = r"from empo_worlds\.(compilation|kernel_\w+|row_table|successor_kernels) import"
    uses = any(re.search(kernels, path.read_text()) for path in (folder / "src").rglob("*.py"))
    needs = "empo-worlds[compiling]>=0.1,<0.2" in toml(folder)["project"]["dependencies"]
    assert needs == (uses and folder.name != "empo_worlds")


def test_the_core_declares_what_it_imports() -> None:
    core = names(toml(ROOT)["project"]["dependencies"]) | {"empo-core"}
    for path in (ROOT / "empo_core").rglob("*.py"):
        assert not imported(path) - core, path


def test_every_plugin_is_installed_by_the_requirements() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    listed = [line.removeprefix("-e plugins/") for line in lines if line.startswith("-e plugins/")]
    assert listed == [folder.name for folder in PLUGINS if folder.name not in OPTIONAL]


def test_no_check_lists_plugins() -> None:
    tool = toml(ROOT)["tool"]
    assert "plugins/*/src" in tool["mypy"]["files"]
    assert tool["ruff"]["lint"]["isort"]["known-first-party"] == ["empo_*"]
    foundations = {name.replace("-", "_") for name in (*FOUNDATIONS, *EXTENSIONS, "empo-testing")}
    text = (ROOT / "pyproject.toml").read_text()
    assert {folder.name for folder in PLUGINS if folder.name in text} <= foundations


def test_every_dependency_is_pinned() -> None:
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", line) for line in pinned)
    wanted = {"torch"}
    for folder in (ROOT, *PLUGINS):
        project = toml(folder)["project"]
        wanted |= names(project["dependencies"])
        for extra in project.get("optional-dependencies", {}).values():
            wanted |= names(extra)
    dev = (ROOT / "requirements-dev.txt").read_text().splitlines()
    wanted |= names([line for line in dev if not line.startswith("-")])
    ours = {"torch", "empo-core"} | {folder.name.replace("_", "-") for folder in PLUGINS}
    assert not wanted - names(pinned) - ours


def test_templates_reach_the_wheel() -> None:
    # hatchling leaves out what git ignores, so a template must not look like a build output.
    ignored = (ROOT / ".gitignore").read_text().split()
    for path in (ROOT / "plugins/empo_testing/src/empo_testing/templates").rglob("*"):
        assert f"{path.name}/" not in ignored, path


def test_everything_can_be_installed_by_one_name() -> None:
    project = toml(ROOT / "distribution")["project"]
    extras = project["optional-dependencies"]
    listed = names(
        [*project["dependencies"], *(line for lines in extras.values() for line in lines)]
    )
    assert listed == {"empo", "empo-core", *(toml(folder)["project"]["name"] for folder in PLUGINS)}


def test_all_distributions_have_one_version() -> None:
    folders = [ROOT, ROOT / "distribution", *PLUGINS]
    assert len({toml(folder)["project"]["version"] for folder in folders}) == 1
