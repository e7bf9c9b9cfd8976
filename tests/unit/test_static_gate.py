"""No shipped line may turn a file into running code, outside the places reviewed here."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(
    path
    for pattern in ("empo_core/**/*.py", "plugins/*/src/**/*.py", "examples/**/*.py")
    for path in ROOT.glob(pattern)
)
TEMPLATES = sorted(ROOT.glob("plugins/empo_testing/src/**/*.tmpl"))
FORBIDDEN = {
    "builtins.eval",
    "builtins.exec",
    "builtins.compile",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "cloudpickle.load",
    "cloudpickle.loads",
    "dill.load",
    "dill.loads",
    "joblib.load",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "torch.load",
    "torch.jit.load",
    "yaml.load",
    "yaml.full_load",
    "yaml.unsafe_load",
    "pandas.read_pickle",
    "os.system",
}
ALLOWED = {
    # Callables reach worker processes that we started, over pipes they inherit; never a file.
    ("plugins/empo_executors/src/empo_executors/worker_main.py", "cloudpickle.loads"),
    ("plugins/empo_executors/src/empo_executors/worker_pool.py", "cloudpickle.loads"),
    # Likewise their results.
    ("plugins/empo_executors/src/empo_executors/worker_process.py", "cloudpickle.loads"),
    # Likewise what an actor is built from.
    ("plugins/empo_async_actors/src/empo_async_actors/actor_worker.py", "cloudpickle.loads"),
    # Likewise to actors of a cluster that the config allows, and from them.
    ("plugins/empo_ray/src/empo_ray/host.py", "cloudpickle.loads"),
    ("plugins/empo_ray/src/empo_ray/remote_worker.py", "cloudpickle.loads"),
    # Likewise what makes environments in worker processes.
    ("plugins/empo_environments/src/empo_environments/env_worker.py", "cloudpickle.loads"),
    ("plugins/empo_environments/src/empo_environments/worker.py", "cloudpickle.loads"),
    # Likewise a world to the processes that solve it.
    ("plugins/empo_exact/src/empo_exact/parts/processes.py", "cloudpickle.loads"),
    # Numba's form of compiled kernels, from folders and files that nobody else can write.
    ("plugins/empo_worlds/src/empo_worlds/kernel_cache.py", "pickle.loads"),
    # The kit sends a world through memory and back, as to a worker.
    ("plugins/empo_testing/src/empo_testing/world_model.py", "cloudpickle.loads"),
}


def dangerous_calls(source: str) -> Iterator[str]:
    """The dotted name of every use of something forbidden, through import aliases too."""
    tree = ast.parse(source)
    names = {name.rpartition(".")[2]: name for name in FORBIDDEN if name.startswith("builtins.")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {(a.asname or a.name): a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {(a.asname or a.name): f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(tree):
        # Without an import a forbidden module's name still counts, so that nothing hides.
        dotted = _dotted(node)
        head, dot, rest = dotted.partition(".")
        if (full := names.get(head, head) + dot + rest) in FORBIDDEN:
            yield full
        if isinstance(node, ast.Call) and _reads_arrays_with_pickle(node, names):
            yield "numpy.load"


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):  # A field may well be called "compile".
        return "" if isinstance(node.ctx, ast.Store) else node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def _reads_arrays_with_pickle(call: ast.Call, names: dict[str, str]) -> bool:
    head, dot, rest = _dotted(call.func).partition(".")
    if names.get(head, head) + dot + rest not in ("numpy.load", "np.load"):
        return False
    values = [k.value for k in call.keywords if k.arg == "allow_pickle"]
    # numpy's own default is False, but a reader should not have to know that.
    return not (values and isinstance(values[0], ast.Constant) and values[0].value is False)


def test_shipped_code_never_loads_code_from_data() -> None:
    uses = {
        (path.relative_to(ROOT).as_posix(), call)
        for path in SHIPPED
        for call in dangerous_calls(path.read_text())
    }
    assert uses <= ALLOWED, sorted(uses - ALLOWED)


def test_templates_of_plugins_never_load_code_from_data() -> None:
    assert TEMPLATES
    for path in TEMPLATES:
        text = path.read_text()
        assert not any(f"{name.removeprefix('builtins.')}(" in text for name in FORBIDDEN), path


def test_something_is_shipped() -> None:
    assert ROOT / "empo_core" / "plugins" / "discovery.py" in SHIPPED


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import pickle\npickle.load(file)", "pickle.load"),
        ("import pickle as p\np.loads(data)", "pickle.loads"),
        ("from pickle import load\nload(file)", "pickle.load"),
        ("from torch import load as read\nread(file)", "torch.load"),
        ("import torch\nreader = torch.load", "torch.load"),
        ("torch.load(file, weights_only=True)", "torch.load"),
        ("yaml.load(text)", "yaml.load"),
        ("eval(text)", "builtins.eval"),
        ("exec(text)", "builtins.exec"),
        ("import numpy as np\nnp.load(file)", "numpy.load"),
        ("import numpy as np\nnp.load(file, allow_pickle=True)", "numpy.load"),
        ("from numpy import load\nload(file)", "numpy.load"),
    ],
)
def test_the_gate_catches(source: str, name: str) -> None:
    assert name in set(dangerous_calls(source))


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "json.load(file)",
        "import re\nre.compile(text)",
        "import numpy as np\nnp.load(file, allow_pickle=False)",
        "'a docstring about pickle.load('",
    ],
)
def test_the_gate_lets_pass(source: str) -> None:
    assert not set(dangerous_calls(source))
