"""Figures of the source: how large, how loose, how tangled. Run by ``nox -s quality``.

``python tests/quality/figures.py [--root TREE] [--against TREE] [--verbose]`` prints a table and
exits with status 1 if a figure that has to be 0 is not: import circles, modules named by a gerund,
reference implementations in ``src``. The other figures have no limit; a large one is a reason to
look at its places.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import networkx
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
GERUND = re.compile(r"(\w+_)?\w{2,}ing")
OPENERS = ("What", "Who", "How", "Where", "Whether")
LOOSE = re.compile(r"\bAny\b|type: ignore|\bcast\(")
TENSORS = re.compile(r"\b(Tensor|ndarray|NDArray)\b")
SHAPED = re.compile(r"\b((Float|Int|UInt)\d*|Bool|Shaped|Num|Integer|Inexact|Real)\[|\bScalar\b")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Module:
    """One source file.

    Attributes:
        path: Where it is, relative to the tree.
        name: Its dotted name.
        text: Its source.
        tree: The same, parsed.
    """

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """True if the module is an ``__init__``."""
        return self.path.name == "__init__.py"


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
    found = []
    for base in (root, *sorted(root.glob("plugins/*/src"))):
        pattern = "empo_core/**/*.py" if base == root else "**/*.py"
        for path in sorted(base.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            name = ".".join(path.relative_to(base).with_suffix("").parts)
            name = name.removesuffix(".__init__")
            found.append(Module(path.relative_to(root), name, text, ast.parse(text)))
    return found


def imports(module: Module, names: set[str]) -> set[str]:
    """The modules of the tree that a module imports, in functions and for types too.

    Importing a name from a package counts as importing the submodule of that name where there is
    one; packages themselves do not count, for they only gather.
    """
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return (found & names) - {module.name}


def circles(source: list[Module]) -> list[str]:
    """Groups of modules that import each other, however indirectly."""
    names = {module.name for module in source if not module.is_package}
    graph = networkx.DiGraph()
    for module in source:
        graph.add_edges_from((module.name, other) for other in imports(module, names))
    groups = networkx.strongly_connected_components(graph)
    return [" <-> ".join(sorted(group)) for group in groups if len(group) > 1]


def functions(source: list[Module]) -> Iterator[tuple[str, int]]:
    """Every function with its place and how many arguments it takes, ``self`` not counted."""
    for module in source:
        for node in ast.walk(module.tree):
            if isinstance(node, FUNCTIONS):
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                # A command's options are named by those who type them, never counted off.
                given = [each for each in every if "typer." not in _hint(each)]
                count = len(given) - bool(given and given[0].arg in ("self", "cls"))
                yield f"{module.path}:{node.lineno} {node.name}", count


def _hint(argument: ast.arg) -> str:
    return ast.unparse(argument.annotation) if argument.annotation else ""


def classes(source: list[Module]) -> Iterator[tuple[str, int]]:
    """Every class with its place and its lines."""
    for module in source:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.end_lineno:
                yield f"{module.path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def docstrings(module: Module) -> Iterator[str]:
    """The docstrings of a module, its classes and its functions."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def tensor_functions(source: list[Module]) -> Iterator[tuple[str, bool]]:
    """Public functions and methods with tensors in their signature, and whether all have shapes."""
    for module in source:
        if "testing" in module.path.parts:
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, FUNCTIONS) or node.name.startswith("_"):
                continue
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            hints = [ast.unparse(each.annotation) for each in every if each.annotation]
            hints += [ast.unparse(node.returns)] if node.returns else []
            tensors = [hint for hint in hints if TENSORS.search(hint)]
            if tensors:
                shaped = all(SHAPED.search(hint) or _is_collection(hint) for hint in tensors)
                yield f"{module.path}:{node.lineno} {node.name}", shaped


def _is_collection(hint: str) -> bool:
    """True if a hint is a mapping or sequence of tensors, which have no common shape."""
    return bool(re.match(r"(Mapping|dict|Sequence|list|Iterable|Iterator|Callable)\[", hint))


def largest(counts: Iterator[tuple[str, int]]) -> tuple[int, list[str]]:
    """The greatest number, and the ten places with the greatest numbers."""
    descending = sorted(counts, key=lambda item: -item[1])
    return descending[0][1], [f"{count} {place}" for place, count in descending[:10]]


def figures(root: Path) -> list[Figure]:
    """All figures of a tree."""
    source = modules(root)
    lines = {str(module.path): len(module.text.splitlines()) for module in source}
    total = sum(lines.values())
    longest, long_files = largest(iter(lines.items()))
    protocols = ((path, count) for path, count in lines.items() if "empo_core/protocols/" in path)
    longest_protocol, long_protocols = largest(protocols)
    widest, wide_classes = largest(classes(source))
    counts = sorted(count for _, count in functions(source))
    most, long_signatures = largest(functions(source))
    loose = {str(module.path): len(LOOSE.findall(_body(module))) for module in source}
    gerunds = [str(module.path) for module in source if GERUND.fullmatch(module.path.stem)]
    openers = [
        f"{module.path}: {text.splitlines()[0]}"
        for module in source
        for text in docstrings(module)
        if re.match(rf"({'|'.join(OPENERS)})\b", text)
    ]
    shaped = dict(tensor_functions(source))
    share = 100 * sum(shaped.values()) / max(len(shaped), 1)
    references = [
        str(module.path) for module in source if "reference" in module.path.stem.split("_")
    ]
    riddles = [
        f"{module.path}:{number}"
        for module in source
        for number, line in enumerate(module.text.splitlines(), 1)
        if re.search(r"\b(no|some)body\b", line, re.IGNORECASE)
    ]
    groups = circles(source)
    looser = [f"{count} {path}" for path, count in sorted(loose.items(), key=lambda x: -x[1])[:20]]
    unshaped = [place for place, has_shapes in shaped.items() if not has_shapes]
    return [
        Figure("import circles, imports for types included", len(groups), True, groups),
        Figure("modules named by a gerund", len(gerunds), True, gerunds),
        Figure("reference implementations in src", len(references), True, references),
        Figure("lines of source", total),
        Figure("largest file, lines", longest, places=long_files),
        Figure("largest file of protocols, lines", longest_protocol, places=long_protocols),
        Figure("largest class, lines", widest, places=wide_classes),
        Figure("arguments of a function, 90th percentile", counts[int(0.9 * len(counts))]),
        Figure("arguments of a function, most", most, places=long_signatures),
        Figure(
            "Any, ignores and casts per 1,000 lines",
            round(1000 * sum(loose.values()) / total, 1),
            places=looser,
        ),
        Figure("docstrings that begin with a question word", len(openers), places=openers),
        Figure("lines with 'nobody' or 'somebody'", len(riddles), places=riddles),
        Figure("public tensor functions with all shapes, %", round(share, 1), places=unshaped),
    ]


def _body(module: Module) -> str:
    """A module's text without its imports, which have to name ``Any`` and ``cast``."""
    lines = module.text.splitlines()
    return "\n".join(line for line in lines if not re.match(r"\s*(from|import) ", line))


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the number of figures that have to be 0 and are not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to measure")
    parser.add_argument("--against", type=Path, help="another tree, measured beside it")
    parser.add_argument("--verbose", action="store_true", help="list the places of every figure")
    chosen = parser.parse_args(arguments)
    now = figures(chosen.root)
    before = figures(chosen.against) if chosen.against else [None] * len(now)
    table = Table("figure", "before", "now", "")
    show: Callable[[float], str] = lambda number: f"{number:,}"  # noqa: E731
    for figure, other in zip(now, before, strict=True):
        verdict = "" if figure.holds else "[red]must be 0[/red]"
        table.add_row(figure.title, show(other.value) if other else "", show(figure.value), verdict)
    console = Console()
    console.print(table)
    for figure in now:
        if figure.places and (chosen.verbose or not figure.holds):
            console.print(
                f"[bold]{figure.title}[/bold]", *figure.places, sep="\n  ", soft_wrap=True
            )
    return sum(not figure.holds for figure in now)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
