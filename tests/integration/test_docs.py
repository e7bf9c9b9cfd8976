"""The documentation is true: its blocks run, its links resolve, and nothing lacks a page.

A comment right before a block says how it is meant, where that is not plain:

* ``<!-- file: name -->`` saves the block under that name before it is checked, and
  ``<!-- wrong file: name -->`` saves one that is not right;
* ``<!-- part of: algorithm.params -->`` puts a piece of YAML into a minimal config
  (``config`` is its top level), and ``<!-- part of sweep: name -->`` into the sweep of that name;
* ``<!-- not run: reason -->`` leaves a block alone;
* ``<!-- exit: 2 -->`` says how the last command of a console block ends.

The blocks of a page run in their order, in one folder that has a copy of ``examples``.
``...`` in an output stands for anything. A config may leave out its algorithm.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import io
import logging
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.config import installed
from empo_core.config.files import load_config
from empo_core.config.yaml import dump_yaml, parse_yaml
from empo_core.documents import build_named
from empo_core.errors import EmpoError
from empo_core.plugins.hookspecs import KINDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [
    ROOT / "README.md",
    ROOT / "examples/README.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(ROOT.glob("plugins/*/README.md")),
]
LINKED = [*PAGES, *sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("examples/plugins/*/README.md"))]
# Pages whose commands take long and are tested elsewhere; `nox -s docs` follows them, too.
SLOW = {
    "docs/explanation/reductions.md",
    "docs/explanation/reductions/in_practice.md",
    "docs/gallery.md",
    "docs/how-to/callbacks.md",
    "docs/how-to/certify_a_policy.md",
    "docs/how-to/compare_beta_r.md",
    "docs/how-to/compare_runs.md",
    "docs/how-to/custom_network.md",
    "docs/how-to/diagnose_power.md",
    "docs/how-to/evaluate_a_run.md",
    "docs/how-to/explain_a_decision.md",
    "docs/how-to/export_a_policy.md",
    "docs/how-to/inspect_a_run.md",
    "docs/how-to/inspect_tables.md",
    "docs/how-to/learn_a_policy.md",
    "docs/how-to/learning_rate_schedules.md",
    "docs/how-to/own_environment.md",
    "docs/how-to/play.md",
    "docs/how-to/run_headless.md",
    "docs/how-to/stop_early.md",
    "docs/how-to/sweep.md",
    "docs/how-to/train_a_latent_agent.md",
    "docs/how-to/train_on.md",
    "docs/how-to/train_with_other_libraries.md",
    "docs/how-to/use_a_notebook.md",
    "docs/how-to/use_minigrid_and_pettingzoo.md",
    "docs/how-to/use_results_in_python.md",
    "docs/how-to/world_in_python.md",
    "docs/inspectors.md",
    "docs/reference/run_directory.md",
    "docs/reference/stable_surface.md",
    "docs/tutorials/choosing_an_objective.md",
    "docs/tutorials/first_plugin.md",
    "docs/tutorials/first_plugin/kinds.md",
    "docs/tutorials/first_plugin/other_kinds.md",
    "docs/tutorials/first_run.md",
    "plugins/empo_async_actors/README.md",
    "plugins/empo_executors/README.md",
}
LANGUAGES = {"yaml", "python", "console", "text", "json", "toml", ""}
NOTES = {"", "file", "wrong file", "part of", "part of sweep", "not run", "exit", "printed"}
CONFIG_KEYS = {"world_model", "world", "algorithm", "trackers"}

BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n\n?)?^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|\bsrc=\"([^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A fenced block, and what the comment before it says."""

    language: str
    text: str
    note: str
    rest: str
    line: int


@dataclass
class Reader:
    """Somebody who follows a page from top to bottom."""

    folder: Path
    python: Path = Path(sys.executable)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__docs__"})
    said: str = ""

    @property
    def here(self) -> bool:
        """True if commands run in this process's Python environment."""
        return self.python == Path(sys.executable)

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        if block.note == "not run":
            return
        if block.note in {"file", "wrong file"}:
            path = self.folder / block.rest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        if block.language == "yaml" and block.note != "wrong file":
            self.check_yaml(block)
        elif block.language == "python" and block.note != "file":
            self.run_python(block)
        elif block.language == "console":
            self.run_console(block)
        elif block.language == "text" and block.note == "printed":
            compare(block.text, self.said)

    def pretend_world(self, config: dict[str, Any]) -> None:
        """Make sure that the world file which a config names exists, be it empty."""
        world = config.get("world_model")
        if isinstance(world, dict) and "file" in world.get("params", {}):
            file = self.folder / world["params"]["file"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def check_yaml(self, block: Block) -> None:
        """Validate a block as a config or a world."""
        if not self.here:  # What that environment has, this process does not know.
            code, out, err = self.run_command(f"empo check {block.rest}")
            assert code == 0, out + err
            return
        data = parse_yaml(block.text, name="block").data
        path = self.folder / (block.rest if block.note == "file" else "block.yaml")
        if block.note == "part of":
            whole: dict[str, Any] = {"world_model": "multigrid/trivial", "algorithm": "exact"}
            if block.rest == "config":
                whole |= data
            else:
                assert block.rest == "algorithm.params", block.rest
                whole["algorithm"] = {"name": "exact", "params": data}
            path.write_text(dump_yaml(whole))
            load_config(path)
            return
        if block.note == "part of sweep" or "base" in data:
            whole = parse_yaml((self.folder / block.rest).read_text(), name="sweep").data
            path.write_text(dump_yaml(whole | data))
            code, _, err = self.run_command(f"empo sweep {path} --dry-run")
            assert code == 0, err
            return
        if CONFIG_KEYS & set(data):
            self.pretend_world(data)
            path.write_text(dump_yaml({"algorithm": "exact"} | data))
            load_config(path)
            path.write_text(block.text)
            return
        path.write_text(block.text)
        problems = []
        for name in installed().names("world_model"):
            try:
                build_named(name, path)
            except EmpoError as error:
                problems.append(str(error))
            else:
                return
        pytest.fail("no world model reads this:\n" + "\n".join(problems))

    def run_python(self, block: Block) -> None:
        """Run a block after the page's earlier ones, and note what it prints."""
        code = compile("\n" * block.line + block.text, "block", "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.names)
        self.said = printed.getvalue()

    def run_console(self, block: Block) -> None:
        """Run the commands of a block and compare what they print."""
        parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        assert not parts[0], "a console block starts with a command"
        commands = [part.partition("\n") for part in parts[1:]]
        for index, (command, _, expected) in enumerate(commands):
            last = index == len(commands) - 1
            wanted = int(block.rest) if block.note == "exit" and last else 0
            code, out, err = self.run_command(command)
            assert code == wanted, f"{command}: exit code {code}\n{out}\n{err}"
            if expected.strip():
                compare(expected, err if wanted else out)

    def run_command(self, command: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command line."""
        words = shlex.split(command.replace("$PWD", str(self.folder)), comments=True)
        # Every process would import torch again, so plain commands run in this one.
        if self.here and words[0] == "empo" and not set(" ".join(words)) & set("|&;<>$`"):
            words = [name for word in words for name in (sorted(glob.glob(word)) or [word])]
            done = CliRunner().invoke(app, words[1:], env={"COLUMNS": "100"})
            return done.exit_code, done.stdout, done.stderr
        path = os.pathsep.join([str(self.python.parent), os.environ["PATH"]])
        # pip must do without the internet; what plugins need is installed.
        pip = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=os.environ | pip | {"PATH": path, "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=240,
        )
        return ended.returncode, ended.stdout, ended.stderr


def compare(expected: str, actual: str) -> None:
    """Fail unless the two agree, apart from trailing blanks and what ``...`` stands for."""
    left, right = (
        [line.rstrip() for line in text.strip().splitlines()] for text in (expected, actual)
    )
    # Alone in its line it stands for any lines, otherwise for any part of one.
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*?") + "\n"
        for line in left
    )
    says, is_ = "\n".join(left) + "\n", "\n".join(right) + "\n"
    assert re.fullmatch(pattern, is_), f"the page says\n{says}\nbut this is\n{is_}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        note, _, rest = (match["note"] or "").partition(": ")
        line = text.count("\n", 0, match.start("text"))
        found.append(Block(match["language"], match["text"], note, rest, line))
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def case(page: Path) -> Any:
    slow = name_of(page) in SLOW
    return pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] * slow)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with only the examples in it; logging is left as it was."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    before = list(logging.getLogger().handlers)
    yield tmp_path
    logging.getLogger().handlers[:] = before


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has ours and may get more."""
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in ours]
    (site / "ours.pth").write_text("".join(lines))
    empo = home / "bin/empo"
    empo.write_text(f'#!/bin/sh\nexec {home}/bin/python -m empo_core "$@"\n')
    empo.chmod(0o755)
    return home / "bin/python"


@pytest.mark.parametrize("page", [case(page) for page in PAGES])
def test_the_blocks_of_a_page_work(
    page: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    reader = Reader(folder)
    if "pip install" in "".join(b.text for b in blocks_of(page) if b.note != "not run"):
        reader = Reader(folder, request.getfixturevalue("environment"))
    if name_of(page) in SLOW:
        request.getfixturevalue("pictures")
    for block in blocks_of(page):
        try:
            reader.follow(block)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"in the block at {name_of(page)}:{block.line}")
            raise


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_kind_that_is_tested(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") + text.startswith("```") == 2 * len(blocks_of(page))
    for block in blocks_of(page):
        where = f"{name_of(page)}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: {block.language} blocks are not tested"
        assert block.note in NOTES, where


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in (first or second for first, second in LINK.findall(prose)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


def anchors(page: Path) -> set[str]:
    """The names that hosting sites give to the headings of a page."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def linked(page: Path) -> set[Path]:
    """The files to which a page links."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    return {(page.parent / link[0].partition("#")[0]).resolve() for link in links if link[0]}


def test_every_page_can_be_found_from_the_index_or_from_the_page_whose_folder_it_is_in() -> None:
    index = linked(DOCS / "README.md")
    for page in sorted({*DOCS.rglob("*.md")} - {DOCS / "README.md"}):
        above = page.parent.with_suffix(".md")
        assert page in (linked(above) if above.is_file() else index), f"no link to {name_of(page)}"


def test_the_generated_reference_is_current() -> None:
    pages = runpy.run_path(str(DOCS / "build_reference.py"))["pages"]()
    for name, text in pages.items():
        written = (REFERENCE / name).read_text(encoding="utf-8")
        assert written == text, f"{name}: run: python docs/build_reference.py"
    for folder in ("components", "protocols"):
        files = {f"{folder}/{path.name}" for path in (REFERENCE / folder).iterdir()}
        assert files == {name for name in pages if name.startswith(f"{folder}/")}


def test_every_kind_and_component_has_a_section() -> None:
    shipped = [o for o in installed().offers if (ROOT / "plugins" / folder_of(o)).is_dir()]
    assert len(shipped) >= 10
    for kind in KINDS:
        pages = (REFERENCE / "components").glob(f"{kind}*.md")
        headings = HEADING.findall("\n".join(page.read_text(encoding="utf-8") for page in pages))
        names = [o.component.name for o in shipped if o.component.kind == kind]
        assert {kind} | {f"{kind} `{name}`" for name in names} <= set(headings)


def folder_of(offer: Any) -> str:
    return offer.provider.distribution.replace("-", "_")


def test_every_protocol_has_a_section_the_founding_five_first() -> None:
    files = sorted((ROOT / "empo_core/protocols").glob("*.py"))
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = re.findall(r"^class (\w+)\(.*(?:Protocol|ABC)\)", source, re.MULTILINE)
    pages = (REFERENCE / "protocols").glob("*.md")
    headings = HEADING.findall("\n".join(page.read_text(encoding="utf-8") for page in pages))
    assert len(names) >= 10
    assert set(names) <= set(headings)
    index = (REFERENCE / "protocols.md").read_text(encoding="utf-8")
    sections = re.findall(r"^\| \w+ \| \[(\w+)\]", index, re.MULTILINE)
    assert sections[:5] == ["WorldModel", "ValueNetwork", "PolicyLoss", "Aggregator", "Tracker"]


def test_every_error_is_explained() -> None:
    source = (ROOT / "empo_core/errors.py").read_text(encoding="utf-8")
    names = re.findall(r"^class (\w+)", source, re.MULTILINE)
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_command_and_option_is_explained() -> None:
    pages = [REFERENCE / "cli.md", *sorted((REFERENCE / "cli").glob("*.md"))]
    page = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for command in app.registered_commands:
        assert f"## empo {command.name}\n" in page
        shown = CliRunner().invoke(app, [str(command.name), "--help"], env={"COLUMNS": "200"})
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown.stdout))
        section = page.partition(f"## empo {command.name}\n")[2].partition("\n## ")[0]
        missing = {o for o in options - {"--help", "--debug"} if f"`{o}" not in section}
        assert not missing, f"empo {command.name}: {missing}"


def test_every_axis_name_is_explained() -> None:
    page = (REFERENCE / "shapes.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| ([^|]+)\|", page, re.MULTILINE)
    table = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    sources = [*ROOT.glob("empo_core/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    array = r"(?:(?:Float|Int|UInt)\d*|Bool|Shaped)\[\s*(?:Tensor|np\.ndarray)"
    shape = re.compile(rf"{array},\s*\"([^\"]*)\"")
    used = {
        word.lstrip("*_#")
        for path in sources
        for text in shape.findall(path.read_text(encoding="utf-8"))
        for word in text.split()
        if not word.isdigit() and not word.startswith("{")
    }
    assert len(used) > 10
    assert used - table == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_dotted_name_exists(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in re.findall(r"`((?:empo_\w+)(?:\.\w+)+)(?:\([^`]*)?`", prose):
        parts = name.split(".")
        found: Any = importlib.import_module(parts[0])
        for index, part in enumerate(parts[1:], start=2):
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(".".join(parts[:index]))
            assert hasattr(found, part), f"{name_of(page)} names {name}"
            found = getattr(found, part)


def test_the_readme_has_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = "$ python3 -m venv .venv && .venv/bin/python -m pip install -r "
    run, test = ".venv/bin/empo run examples/free_the_human.yaml", ".venv/bin/python -m pytest"
    assert f"{start}requirements.txt && {run}" in lines
    assert f"{start}requirements-dev.txt && {test}" in lines


def test_a_page_that_is_wrong_is_noticed(folder: Path) -> None:
    reader = Reader(folder)
    with pytest.raises(AssertionError, match="page says"):
        reader.follow(Block("console", "$ echo one\ntwo\n", "", "", 0))
    with pytest.raises(AssertionError, match="exit code 3"):
        reader.follow(Block("console", "$ exit 3\n", "", "", 0))
    with pytest.raises(EmpoError, match="beta_rr"):
        reader.follow(Block("yaml", "beta_rr: 1.0\n", "part of", "algorithm.params", 0))
    with pytest.raises(pytest.fail.Exception, match="model reads"):
        reader.follow(Block("yaml", "map: Ay\ncolour: red\n", "", "", 0))
    with pytest.raises(NameError):
        reader.follow(Block("python", "undefined\n", "", "", 0))
