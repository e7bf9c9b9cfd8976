"""Figures of the source: how large, how tangled, in which words. Run by ``nox -s quality``.

``python tests/quality/figures.py [--root TREE] [--against TREE] [--verbose]`` prints a table and
exits with status 1 if a figure that has to be 0 is not: import circles, modules named by a gerund,
reference implementations in ``src``, names that are function words, ``match=`` of tests that is
prose, entries of ``Raises:`` that are no clause. The other figures have no limit; a large one is a
reason to look at its places. The last figures are those of a real ``empo run``, of the installed
packages.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import networkx
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
EXACT_RUN = (
    *("run", "table/pause_destroy", "algorithm=exact", "algorithm.params.inspector=false"),
    *("trackers=[]", "--quiet"),
)
GERUND = re.compile(r"(?!learning$)(\w+_)?\w{2,}ing")  # Learning is a noun of the field.
TENSORS = re.compile(r"\b(Tensor|ndarray|NDArray)\b")
SHAPED = re.compile(r"\b((Float|Int|UInt)\d*|Bool|Shaped|Num|Integer|Inexact|Real)\[|\bScalar\b")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTION_WORD = re.compile(
    "found|known|kept|told|asked|given|wanted|said|shown|moved|passed|taken|worth|own|each|one|some|"
    "few|every|rest|what|who|whose|those|least|most|ahead|apart|beside|looked|seen|judged|followed|"
    "meant|needed|offered|owed|spent|gone"
)
"""Words that say nothing about a value, as names of variables, arguments and attributes."""
NO_CLAUSE = re.compile(
    r"^ +[A-Z]\w+(?:Error|Exception|Interrupt|Interrupted): (?!if |as |when )", re.M
)
"""An entry of ``Raises:`` that does not begin with its condition."""
PROSE = re.compile(r"(?:^|(?<=[ )]))[a-z]+,? [a-z]+,? [a-z]+(?=$|[ ,;:])")
"""Three words in a row, in what a test expects an error to say."""

PROFILED_RUN = """
import inspect, json, runpy, sys, threading
functions, status, is_reached = set(), None, False
def profile(frame, event, argument):
    global is_reached
    code = frame.f_code
    of_ours = "empo_" in code.co_filename and code.co_flags & inspect.CO_OPTIMIZED
    if event != "call" or not of_ours or is_reached:
        return
    if code.co_name == "run" and code.co_filename.endswith("empo_exact/algorithm.py"):
        is_reached = True
        sys.setprofile(None)
    elif not code.co_name.startswith("<"):
        functions.add((code.co_filename, code.co_qualname))
threading.setprofile(profile)
sys.setprofile(profile)
try:
    runpy.run_module("empo_core", run_name="__main__")
except SystemExit as end:
    status = end.code
print(json.dumps({
    "status": status,
    "modules": sorted(sys.modules),
    "functions": sorted(functions),
}), file=sys.stderr)
"""
"""Runs ``empo``; reports functions called before the first line of ``exact``, not module bodies."""
WALK = re.compile(r"^## The walk of a config$.*?^## ", re.M | re.S)
"""The way of such a run through the core, in the page on the architecture."""


@dataclass(frozen=True)
class Module:
    """One source file.

    Attributes:
        path: Path relative to the tree.
        name: Dotted name.
        text: Source.
        tree: Syntax tree of the source.
    """

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """True if the module is an ``__init__``."""
        return self.path.name == "__init__.py"

    @property
    def is_core(self) -> bool:
        """True if the module is part of the core and no conformance kit."""
        return self.path.parts[0] == "empo_core" and "testing" not in self.path.parts

    @property
    def num_lines(self) -> int:
        """Number of lines."""
        return len(self.text.splitlines())


@dataclass
class Figure:
    """One number, and the places to look at.

    Attributes:
        title: What is counted.
        value: The count.
        must_be_zero: True if a value other than 0 is an error.
        places: Where the counted things are, the largest first.
    """

    title: str
    value: float
    must_be_zero: bool = False
    places: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """True if the value is allowed."""
        return not (self.must_be_zero and self.value)


def modules(root: Path) -> list[Module]:
    """Every module that the core and the plugins ship."""
    source = []
    for base in (root, *sorted(root.glob("plugins/*/src"))):
        for path in sorted(base.glob("empo_core/**/*.py" if base == root else "**/*.py")):
            text = path.read_text(encoding="utf-8")
            name = ".".join(path.relative_to(base).with_suffix("").parts)
            name = name.removesuffix(".__init__")
            source.append(Module(path.relative_to(root), name, text, ast.parse(text)))
    return source


def imports(module: Module, names: set[str]) -> set[str]:
    """The modules of the tree that a module imports, in functions and for types too.

    Importing a name from a package counts as importing the submodule of that name where there is
    one; packages themselves do not count, for they only gather.
    """
    imported: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return (imported & names) - {module.name}


def circles(source: list[Module]) -> list[str]:
    """Groups of modules that import each other, however indirectly."""
    names = {module.name for module in source if not module.is_package}
    graph = networkx.DiGraph()
    for module in source:
        graph.add_edges_from((module.name, other) for other in imports(module, names))
    groups = networkx.strongly_connected_components(graph)
    return [" <-> ".join(sorted(group)) for group in groups if len(group) > 1]


def classes(source: list[Module]) -> Iterator[tuple[Module, ast.ClassDef]]:
    """Every class with its module."""
    for module in source:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                yield module, node


def protocols(source: list[Module]) -> list[str]:
    """Places of all protocols and abstract base classes, and of the base class of trackers."""
    return [
        f"{module.path}:{node.lineno} {node.name}"
        for module, node in classes(source)
        if node.name == "Tracker"
        or any(re.fullmatch(r"(.*\.)?(Protocol|ABC)(\[.*)?", ast.unparse(b)) for b in node.bases)
    ]


def bound_names(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name of every variable, argument, attribute and function that is bound.

    A field of params is left out: its name is a key of configs.
    """
    keys = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
            keys |= {node.target} if ast.unparse(node.value.func) == "Field" else set()
        elif isinstance(node, FUNCTIONS):
            yield node.lineno, node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in keys:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def nodes_of_tests(root: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the syntax trees of all tests, with its file relative to the tree."""
    for folder in (root / "tests", *sorted(root.glob("plugins/*/tests"))):
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield path.relative_to(root), node


def words_in_tests(root: Path) -> list[str]:
    """Places of arguments in tests that are function words."""
    return [
        f"{path}:{node.lineno} {node.arg}"
        for path, node in nodes_of_tests(root)
        if isinstance(node, ast.arg) and FUNCTION_WORD.fullmatch(node.arg)
    ]


def prose_in_tests(root: Path) -> list[str]:
    """Places of ``match=`` that pin the prose of an error."""
    return [
        f"{path}:{part.lineno} {part.value}"
        for path, node in nodes_of_tests(root)
        if isinstance(node, ast.keyword) and node.arg == "match"
        for part in ast.walk(node.value)
        if isinstance(part, ast.Constant) and PROSE.search(str(part.value))
    ]


def tensor_functions(source: list[Module]) -> Iterator[tuple[str, bool]]:
    """Public functions and methods with tensors in their signature, and whether all have shapes."""
    for module in source:
        if {"testing", "empo_testing"} & set(module.path.parts):
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, FUNCTIONS) or node.name.startswith("_"):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            hints = [ast.unparse(item.annotation) for item in arguments if item.annotation]
            hints += [ast.unparse(node.returns)] if node.returns else []
            tensors = [hint for hint in hints if TENSORS.search(hint)]
            if tensors:
                shaped = all(SHAPED.search(hint) or _is_collection(hint) for hint in tensors)
                yield f"{module.path}:{node.lineno} {node.name}", shaped


def _is_collection(hint: str) -> bool:
    """True if a hint is a mapping or sequence of tensors, which have no common shape."""
    return bool(re.match(r"(Mapping|dict|Sequence|list|Iterable|Iterator|Callable)\[", hint))


def largest(counts: dict[str, int]) -> tuple[int, list[str]]:
    """The greatest number, and the ten places with the greatest numbers."""
    descending = sorted(counts.items(), key=lambda item: -item[1])[:10]
    return descending[0][1], [f"{count} {place}" for place, count in descending]


def figures_of_source(root: Path) -> list[Figure]:
    """Figures of a tree that need nothing but its text."""
    source = modules(root)
    groups = circles(source)
    gerunds = [str(module.path) for module in source if GERUND.fullmatch(module.path.stem)]
    references = [
        str(module.path)
        for module in source
        # The reference solver of ``empo_theory`` is the one that is shipped.
        if "reference" in module.path.stem.split("_") and "empo_theory" not in module.path.parts
    ]
    core = [module for module in source if module.is_core]
    longest, long_files = largest({str(module.path): module.num_lines for module in source})
    widest, wide_classes = largest(
        {
            f"{module.path}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
            for module, node in classes(source)
        }
    )
    names = [(module, *bound) for module in source for bound in bound_names(module)]
    words = [item for item in names if FUNCTION_WORD.fullmatch(item[2])]
    counts = Counter(name for _, _, name in words).most_common()
    in_tests = words_in_tests(root)
    prose = prose_in_tests(root)
    no_clauses = [
        f"{module.path}:{module.text.count(chr(10), 0, match.start()) + 1}"
        for module in source
        for match in NO_CLAUSE.finditer(module.text)
    ]
    shaped = dict(tensor_functions(source))
    unshaped = [place for place, has_shapes in shaped.items() if not has_shapes]
    return [
        Figure("import circles, imports for types included", len(groups), True, groups),
        Figure("modules named by a gerund", len(gerunds), True, gerunds),
        Figure("reference implementations in src", len(references), True, references),
        Figure("lines of the core, without kits", sum(module.num_lines for module in core)),
        Figure(
            "protocols and base classes of the core", len(protocols(core)), places=protocols(core)
        ),
        Figure("protocols and base classes in all", len(protocols(source))),
        Figure("lines of source in all", sum(module.num_lines for module in source)),
        Figure("files of source in all", len(source)),
        Figure("largest file, lines", longest, places=long_files),
        Figure("largest class, lines", widest, places=wide_classes),
        Figure(
            "names that are function words",
            len(words),
            True,
            places=[f"{count} {name}" for name, count in counts]
            + [f"{module.path}:{line} {name}" for module, line, name in words],
        ),
        Figure("arguments of tests that are function words", len(in_tests), True, in_tests),
        Figure("patterns of tests that are prose", len(prose), True, prose),
        Figure("entries of Raises that are no clause", len(no_clauses), True, no_clauses),
        Figure("public tensor functions without all shapes", len(unshaped), places=unshaped),
    ]


def figures_of_run() -> list[Figure]:
    """Figures of ``empo run`` of an exact config, with the installed packages.

    Raises:
        RuntimeError: If the run fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", PROFILED_RUN, *EXACT_RUN],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    report = done.stderr.splitlines()[-1] if done.stderr else ""
    if done.returncode or not report.startswith("{") or json.loads(report)["status"]:
        raise RuntimeError(f"empo {' '.join(EXACT_RUN)} failed: {done.stderr}")
    run = json.loads(report)
    of_ours = [name for name in run["modules"] if name.split(".")[0].startswith("empo_")]
    functions = [f"{Path(file).name} {name}" for file, name in run["functions"]]
    files = sorted({file for file, _ in run["functions"]})
    walk = WALK.search((ROOT / "docs/explanation/walks.md").read_text(encoding="utf-8"))
    assert walk is not None
    named = re.findall(r"`([\w./]+\.py)`", walk[0])
    unnamed = [
        file
        for file in files
        if "/empo_core/" in file and not any(file.endswith(f"/{name}") for name in named)
    ]
    return [
        Figure("modules that an exact run imports", len(run["modules"]), places=run["modules"]),
        Figure("modules of ours among them", len(of_ours), places=of_ours),
        Figure("files run before the first line of exact", len(files), places=files),
        Figure("functions run before it", len(functions), places=functions),
        Figure("files of the core among them that its walk lacks", len(unnamed), True, unnamed),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the number of figures that have to be 0 and are not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to measure")
    parser.add_argument("--against", type=Path, help="another tree, its text measured beside it")
    parser.add_argument("--verbose", action="store_true", help="list the places of every figure")
    options = parser.parse_args(arguments)
    now = figures_of_source(options.root) + figures_of_run()
    before = figures_of_source(options.against) if options.against else []
    table = Table("figure", "before", "now", "")
    for figure, other in zip_longest(now, before):
        verdict = "" if figure.holds else "[red]must be 0[/red]"
        table.add_row(
            figure.title, f"{other.value:,}" if other else "", f"{figure.value:,}", verdict
        )
    console = Console()
    console.print(table)
    for figure in now:
        if figure.places and (options.verbose or not figure.holds):
            console.print(
                f"[bold]{figure.title}[/bold]", *figure.places, sep="\n  ", soft_wrap=True
            )
    return sum(not figure.holds for figure in now)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
