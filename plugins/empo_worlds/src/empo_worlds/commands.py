"""``empo warmup``; imports nothing heavy before it runs."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from empo_core.cli.output import Debug, Json, Quiet, only_ours_on_stdout, print_json, show
from empo_core.errors import ConfigError


def warmup(json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Compile the kernels of all installed plugins once, and keep them for later runs.

    Where they are kept is told at the end; NUMBA_CACHE_DIR names another folder.
    """
    if find_spec("numba") is None:
        raise ConfigError(
            "there are no kernels to compile without numba: pip install 'empo-worlds[compiling]'"
        )
    with only_ours_on_stdout(quiet=quiet):
        from empo_core.cli.run import progress_shown
        from empo_core.config import installed
        from empo_worlds.warmup import folders, warm_up

        total, done = len(installed().kernel_hooks), []
        with progress_shown(Path(), quiet=quiet or json) as tracker:
            for plugin in warm_up():
                done.append(plugin)
                tracker.progress("plugins", len(done), total)
    if json:
        plugins = [asdict(plugin) for plugin in done]
        print_json({"plugins": plugins, "folders": [str(folder) for folder in folders()]})
        return
    for plugin in done if not quiet else ():
        show(
            f"{plugin.distribution}: {plugin.compiled} kernels compiled, {plugin.loaded} loaded, "
            f"{plugin.seconds:.1f} s"
        )
    for folder in folders():
        show(str(folder))
