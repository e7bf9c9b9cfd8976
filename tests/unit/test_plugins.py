"""Discovery, against real metadata on disk: every kind of bad plugin costs only itself."""

import locale
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.config import installed
from empo_core.errors import DuplicateComponentError, UnknownComponentError
from empo_core.plugins.discovery import discover
from empo_core.plugins.registry import Provider

Install = Callable[..., None]

GOOD = """
from empo_core import Component, Config, hookimpl

class Params(Config):
    weight: float = 1.0

@hookimpl
def empo_components():
    yield Component(kind="aggregator", name="{name}", params=Params, target="nowhere:X", api={api})
"""


def plugin(name: str, api: object = 1) -> str:
    return GOOD.format(name=name, api=api)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution for one test: real metadata on disk, no pip and no mocks."""
    monkeypatch.delenv("EMPO_BLOCK_PLUGINS", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, source: str, entry_point: str | None = None) -> None:
        # Modules stay in sys.modules, so every test gets module names of its own.
        module = f"{name.replace('-', '_')}_{abs(hash(tmp_path)) % 10**9}"
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[empo]\n{entry_point or name} = {module}\n")
        monkeypatch.syspath_prepend(str(tmp_path))  # Forgets the cached directory listing.

    return install


def provider(distribution: str) -> Provider:
    (found,) = (p for p in discover().providers if p.distribution == distribution)
    assert "\n" not in found.problem
    return found


def test_a_plugin_may_have_nothing_but_a_hook_for_finished_runs(install: Install) -> None:
    source = "from empo_core import hookimpl\n@hookimpl\ndef empo_run_finished(run): return run + 1"
    install("empo-after", source)
    (hook,) = (hook for hook in discover().run_hooks if hook.provider.distribution == "empo-after")
    assert hook.call(1) == 2
    assert not hook.provider.problem


@pytest.mark.parametrize("target", ["'math:sqrt'", "'math'", "None"])
def test_the_hook_for_kernels_returns_the_place_of_a_function(
    install: Install, target: str
) -> None:
    source = "from empo_core import hookimpl\n@hookimpl\ndef empo_kernels(): return "
    install("empo-kernels", source + target)
    hooks = [h for h in discover().kernel_hooks if h.provider.distribution == "empo-kernels"]
    is_right = ":" in target
    assert [hook.load()(4) for hook in hooks] == [2.0] * is_right
    assert bool(provider("empo-kernels").problem) != is_right


def test_a_good_plugin_offers_its_components(install: Install) -> None:
    install("empo-good", plugin("good"))
    offer = discover().offer("aggregator", "good")
    assert offer.component.name == "good"
    assert offer.provider == Provider("empo-good", "1.2", "empo-good", "")


def test_an_unknown_name_gets_the_near_miss_and_the_installed_list(install: Install) -> None:
    install("empo-good", plugin("good-one"))
    with pytest.raises(UnknownComponentError, match="'good-one'") as caught:
        discover().get("aggregator", "god-one")
    assert "Installed: " in str(caught.value)


def test_two_providers_of_one_name_are_both_named(install: Install) -> None:
    install("empo-a", plugin("same"))
    install("empo-b", plugin("same"))
    registry = discover()
    with pytest.raises(DuplicateComponentError, match="empo-a and empo-b"):
        registry.get("aggregator", "same")
    assert len(registry.clashes()) == 1


def test_blocking_one_of_two_providers_settles_it(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("empo-a", plugin("same"))
    install("empo-b", plugin("same"))
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", "empo-b")
    assert discover().offer("aggregator", "same").provider.distribution == "empo-a"


def test_two_distributions_with_one_entry_point_name_are_both_refused(install: Install) -> None:
    install("empo-a", plugin("a"), entry_point="empo-twin")
    install("empo-b", plugin("b"), entry_point="empo-twin")
    problem = (
        "empo-a and empo-b both install an entry point called 'empo-twin'; "
        "uninstall all but one, or set EMPO_BLOCK_PLUGINS=empo-b:empo-twin"
    )
    assert provider("empo-a").problem == problem
    assert provider("empo-b").problem == problem
    assert not {"a", "b"} & set(discover().names("aggregator"))


def test_blocking_one_twin_frees_the_other(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("empo-a", plugin("a"), entry_point="empo-twin")
    install("empo-b", plugin("b"), entry_point="empo-twin")
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", "empo-b")
    assert provider("empo-a").problem == ""
    assert provider("empo-b").problem == "blocked by EMPO_BLOCK_PLUGINS"
    assert "a" in discover().names("aggregator")


def test_the_advice_on_a_clash_blocks_the_one_plugin_and_no_other(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("empo-a", plugin("same"))
    install("empo-b", plugin("same"), entry_point="empo-c")
    install("empo-c", plugin("other"), entry_point="empo-d")  # Called as that entry point is.
    (clash,) = discover().clashes()
    advice = re.search(r"EMPO_BLOCK_PLUGINS=(\S+)\.", clash)
    assert advice
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", advice[1])
    assert discover().offer("aggregator", "same").provider.distribution == "empo-a"
    assert provider("empo-c").problem == ""
    install("empo-e", plugin("twin"), entry_point="empo-d")
    advice = re.search(r"EMPO_BLOCK_PLUGINS=(\S+)$", provider("empo-c").problem)
    assert advice
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", advice[1])
    assert sorted(p.distribution for p in discover().providers if "block" in p.problem) == [
        "empo-e"
    ]


def test_without_plugins_none_is_imported(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("empo-bad", "raise AssertionError('imported')")
    monkeypatch.setenv("EMPO_NO_PLUGINS", "1")
    assert provider("empo-bad").problem == "blocked by EMPO_NO_PLUGINS"
    assert not provider("empo-bad").is_broken
    assert discover().offers == []
    assert discover().commands == {}
    monkeypatch.setenv("EMPO_NO_PLUGINS", "")
    assert provider("empo-bad").is_broken


def test_strict_plugins_make_any_broken_plugin_an_error(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empo(*arguments: str) -> Result:
        installed.cache_clear()
        return CliRunner().invoke(app, list(arguments))

    assert empo("--strict-plugins", "plugins").exit_code == 0
    install("empo-a", plugin("same"))
    install("empo-b", plugin("same"))
    install("empo-bad", "raise ValueError('no')")
    shown = empo("plugins")
    assert shown.exit_code == 0
    assert "mended by its author; who only uses it upgrades" in " ".join(shown.stdout.split())
    refused = empo("--strict-plugins", "plugins")
    assert (refused.exit_code, refused.stdout) == (3, "")
    first, second, page = refused.stderr.splitlines()
    assert page.startswith("See docs/")
    assert re.fullmatch(r"empo-bad 1\.2: importing empo_bad\w* raises ValueError: no", first)
    assert "empo-a and empo-b" in second
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", "empo-bad,empo-b")
    assert empo("--strict-plugins", "plugins").exit_code == 0
    installed.cache_clear()


@pytest.mark.parametrize("blocked", ["empo-bad", "other, EMPO_BAD", "bad-point"])
def test_a_blocked_plugin_is_not_even_imported(
    install: Install, monkeypatch: pytest.MonkeyPatch, blocked: str
) -> None:
    install("empo-bad", "raise AssertionError('imported')", entry_point="bad-point")
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", blocked)
    assert provider("empo-bad").problem == "blocked by EMPO_BLOCK_PLUGINS"


HOOK = "from empo_core import Component, Config, hookimpl\n@hookimpl\ndef empo_components():\n    "
BAD = {
    "raises": (
        "raise ValueError('two\\nlines')",
        r"importing empo_bad\w* raises ValueError: two lines",
    ),
    "exits": ("import sys\nsys.exit(3)", r"importing empo_bad\w* calls sys.exit\(3\)"),
    "raises what no handler of exceptions catches": (
        "class Odd(BaseException):\n    pass\nraise Odd('away')",
        r"importing empo_bad\w* raises Odd: away",
    ),
    "does not parse": ("def", r"importing empo_bad\w* raises SyntaxError: .*"),
    "lacks a dependency": (
        "import not_there_at_all",
        r"importing empo_bad\w* raises ModuleNotFoundError: No module named 'not_there_at_all'",
    ),
    "is too new": (
        plugin("bad", api=2),
        "aggregator 'bad' is for plugin API 2; this empo-core speaks 1. Upgrade empo-core.",
    ),
    "is too old": (
        plugin("bad", api=0),
        "aggregator 'bad' is for plugin API 0; this empo-core speaks 1. Upgrade empo-bad.",
    ),
    "gives no number as API": (
        plugin("bad", api="'1'"),
        "aggregator 'bad' is for plugin API '1'; this empo-core speaks 1. Upgrade empo-bad.",
    ),
    "misspells the hook": (
        plugin("bad").replace("def empo_components", "def empo_component"),
        r"empo_bad\w* has empo_component with @hookimpl; the hooks .* called empo_components, .*",
    ),
    "gives the hook an argument": (
        plugin("bad").replace("empo_components()", "empo_components(registry)"),
        r"its empo_components raises TypeError: empo_components\(\) missing .* 'registry'",
    ),
    "has no hook": ("x = 1", r"empo_bad\w* has nothing with @hookimpl; .*"),
    "has a hook that raises": (
        HOOK + "raise OSError('gone')",
        "its empo_components raises OSError: gone",
    ),
    "has a hook that exits": (
        HOOK + "raise SystemExit('bye')",
        r"its empo_components calls sys.exit\('bye'\)",
    ),
    "has a hook that raises what no handler catches": (
        HOOK + "raise GeneratorExit('off')",
        "its empo_components raises GeneratorExit: off",
    ),
    "has a hook that fails halfway": (
        plugin("bad") + "    raise OSError('late')",
        "its empo_components raises OSError: late",
    ),
    "returns no list": (
        HOOK + "return 5",
        "its empo_components raises TypeError: 'int' object is not iterable",
    ),
    "yields something else": (
        HOOK + "return [5]",
        "its empo_components yields 5, not a Component",
    ),
    "has params that are no model": (
        plugin("bad").replace("params=Params", "params=dict"),
        "the params of aggregator 'bad' are <class 'dict'>, not a pydantic model",
    ),
    "has params that are no class": (
        plugin("bad").replace("params=Params", "params={}"),
        r"the params of aggregator 'bad' are \{\}, not a pydantic model",
    ),
    "has params at no place": (
        plugin("bad").replace("params=Params", "params='Params'"),
        "the params of aggregator 'bad' could not be loaded from 'Params': .*",
    ),
    "has an unknown kind": (
        plugin("bad").replace('"aggregator"', '"agregator"'),
        "agregator 'bad' has an unknown kind; kinds are world_model, .*",
    ),
    "has a name that no config could write": (
        plugin("Bad/Name"),
        "aggregator 'Bad/Name' is badly named; a name is lower-case words joined by hyphens",
    ),
    "offers one component twice": (
        plugin("bad") + plugin("bad").split("empo_components():")[1],
        "its empo_components yields aggregator 'bad' twice",
    ),
}


@pytest.mark.parametrize(("source", "problem"), BAD.values(), ids=BAD)
def test_a_plugin_costs_only_itself_when_it(install: Install, source: str, problem: str) -> None:
    install("empo-bad", source)
    install("empo-good", plugin("good"))
    found = provider("empo-bad").problem
    assert re.fullmatch(problem, found), found
    assert provider("empo-good").problem == ""
    registry = discover()
    assert "good" in registry.names("aggregator")
    assert "bad" not in registry.names("aggregator")
    with pytest.raises(UnknownComponentError, match="empo-bad"):
        registry.get("aggregator", "bad")


def test_ctrl_c_in_a_plugin_that_hangs_ends_the_command_and_names_the_plugin(
    install: Install,
) -> None:
    press = "import os, signal, time\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
    install("empo-bad", HOOK + press)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Some shells ignore it.
    try:
        with pytest.raises(KeyboardInterrupt, match=r"^interrupted: empo-bad, its empo_comp"):
            discover()
    finally:
        signal.signal(signal.SIGINT, before)


OTHER = b"[console_scripts]\n"
BROKEN_METADATA: dict[str, dict[str, bytes | None]] = {
    "has no METADATA": {"METADATA": None},
    "has no name": {"METADATA": b"Version: 1.2\n"},
    "has no version": {"METADATA": b"Name: empo-bad\n\nVersion: 1\n"},
    "has METADATA that is no text": {"METADATA": b"Name: \xff\xfe"},
    "has a bad line": {"entry_points.txt": b"[empo]\nnonsense\n"},
    "has entry points that are no text": {"entry_points.txt": b"[empo]\nx = \xff\xfe\n"},
    "is no plugin, with a bad line": {"entry_points.txt": OTHER + b"nonsense\n"},
    "is no plugin, without METADATA": {"METADATA": None, "entry_points.txt": OTHER},
    "is an empty folder": {"METADATA": None, "entry_points.txt": None},
}


@pytest.mark.parametrize("files", BROKEN_METADATA.values(), ids=BROKEN_METADATA)
def test_broken_metadata_is_a_row_with_the_folder_and_ends_no_command(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, bytes | None],
) -> None:
    install("empo-bad", plugin("bad"))
    (info,) = tmp_path.glob("empo_bad*.dist-info")
    for name, content in files.items():
        (info / name).unlink()
        if content is not None:
            (info / name).write_bytes(content)
    install("empo-good", plugin("good"))
    registry = discover()
    assert registry.get("aggregator", "good")
    assert "bad" not in registry.names("aggregator")
    (row,) = (p for p in registry.providers if str(info) in p.problem)
    assert row.distribution.startswith("empo-bad")
    assert (row.version, row.entry_point, row.is_broken) == ("1.2", "", True)
    assert "\n" not in row.problem
    monkeypatch.setenv("EMPO_BLOCK_PLUGINS", row.distribution)
    (row,) = (p for p in discover().providers if p.distribution == row.distribution)
    assert row.problem == "blocked by EMPO_BLOCK_PLUGINS"


def test_broken_metadata_does_not_keep_libraries_from_reading_entry_points(
    install: Install, tmp_path: Path
) -> None:
    install("empo-bad", plugin("bad"))
    (points,) = tmp_path.glob("empo_bad*.dist-info/entry_points.txt")
    points.write_bytes(OTHER + b"nonsense\n")
    script = (  # As torch and numba do when they are imported.
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from importlib.metadata import entry_points\n"
        "from empo_core.plugins.discovery import discover\n"
        "for _ in '12':\n"
        "    assert sum(p.is_broken for p in discover().providers) == 1\n"
        "    assert entry_points(group='empo')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_equal_entry_points_of_one_distribution_count_once(
    install: Install, tmp_path: Path
) -> None:
    install("empo-good", plugin("good"))
    (points,) = tmp_path.glob("empo_good*.dist-info/entry_points.txt")
    line = points.read_text().splitlines()[1]
    points.write_text(f"[empo]\n{line}\n{line}\n")
    assert provider("empo-good").problem == ""
    assert discover().get("aggregator", "good")
    points.write_text(f"[empo]\n{line}\n{line}_other\n")
    rows = [p for p in discover().providers if p.distribution == "empo-good"]
    assert len(rows) == 2
    assert all("several values" in row.problem for row in rows)


def test_of_one_distribution_in_two_folders_the_first_on_the_path_counts(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("empo-good", plugin("good"))
    (info,) = tmp_path.glob("*.dist-info")
    older = tmp_path / "older" / "Empo.Good-1.1.dist-info"
    shutil.copytree(info, older)
    (older / "METADATA").write_text("Name: Empo.Good\nVersion: 1.1\n")
    monkeypatch.syspath_prepend(str(older.parent))
    assert provider("Empo.Good").version == "1.1"
    assert discover().offer("aggregator", "good").provider.version == "1.1"


CHANGES = {
    "the working folder": "os.chdir('/')",
    "the umask": "os.umask(0o123)",
    "the locale": "locale.setlocale(locale.LC_ALL, 'C' if locale.setlocale(locale.LC_ALL) "
    "!= 'C' else 'C.UTF-8')",
    "signal handlers": "signal.signal(signal.SIGUSR1, lambda *_: None)",
    "standard error": "sys.stderr = sys.__stderr__",
}


@pytest.mark.parametrize("at", ["import", "import of a component", "a failing import"])
def test_what_a_plugin_changes_of_the_process_is_put_back_and_said(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    def state() -> list[object]:
        mask = os.umask(0)
        os.umask(mask)
        return [os.getcwd(), mask, locale.setlocale(locale.LC_ALL), sys.stderr,
                signal.getsignal(signal.SIGUSR1)]  # fmt: skip

    before = state()
    changes = "import locale, os, signal, sys\n" + "\n".join(CHANGES.values()) + "\n"
    name = f"empo_changes_{abs(hash(tmp_path)) % 10**9}"
    source = plugin("good").replace("nowhere:X", f"{name}:X")
    if at == "import of a component":
        install("empo-good", source)
        (tmp_path / f"{name}.py").write_text(changes + "X = int\n")
        discover().get("aggregator", "good").load()
        assert all(change in caplog.text for change in CHANGES)
    else:
        install("empo-good", changes + source + (at == "a failing import") * "\n1 / 0\n")
        assert set(provider("empo-good").put_back) == set(CHANGES)
    assert state() == before


def test_a_plugin_that_imports_torch_is_flagged_and_its_defaults_stay(
    install: Install, tmp_path: Path
) -> None:
    torch = "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\n"
    install("empo-slow", torch + plugin("slow"))
    install("empo-fast", plugin("fast"))
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from empo_core.plugins.discovery import discover\n"
        "rows = {p.distribution: p for p in discover().providers}\n"
        "assert [name for name in rows if rows[name].imports_torch] == ['empo-slow']\n"
        "assert rows['empo-slow'].import_s > rows['empo-fast'].import_s > 0\n"
        "assert set(rows['empo-slow'].put_back) == "
        '{"torch\'s default dtype", "torch\'s gradients"}\n'
        "import torch\n"
        "assert (torch.get_default_dtype(), torch.is_grad_enabled()) == (torch.float32, True)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_a_plugin_prints_does_not_reach_standard_output(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("empo-loud", "print('hello')\n" + plugin("loud") + "    print('again')")
    assert "loud" in discover().names("aggregator")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "hello\nagain\n"


def test_listing_plugins_imports_neither_torch_nor_numba() -> None:
    script = (
        "import sys\n"
        "from empo_core.plugins.discovery import discover\n"
        "discover()\n"
        "heavy = {'torch', 'numba', 'numpy'} & set(sys.modules)\n"
        "heavy |= {name for name in sys.modules if name.endswith('.params')}\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
