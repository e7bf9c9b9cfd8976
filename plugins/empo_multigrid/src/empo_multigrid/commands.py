"""``empo from-minigrid``; imports nothing heavy before it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from empo_core.cli.output import Debug, Json, only_ours_on_stdout, print_json, show
from empo_core.errors import ConfigError


def from_minigrid(
    env_id: Annotated[
        str,
        typer.Argument(metavar="ID", help="E.g. MiniGrid-DoorKey-5x5-v0.", show_default=False),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The world file.", show_default=False)
    ],
    robot: Annotated[
        str | None,
        typer.Option(metavar="X,Y", help="Add a robot in this cell.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Draws the map.")] = 0,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a map of MiniGrid as a world file; its agent is the human."""
    with only_ours_on_stdout():
        cell = None if robot is None else _cell(robot)
        try:
            import minigrid  # noqa: F401 - registers its environments
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"MiniGrid is not installed ({error}): pip install minigrid"
            ) from error
        import gymnasium

        from empo_core.runs.atomic import write_file
        from empo_multigrid.file.minigrid import from_minigrid
        from empo_multigrid.world import world_from_text

        if not env_id.startswith(("MiniGrid-", "BabyAI-")) or env_id not in gymnasium.registry:
            raise ConfigError(f"{env_id!r} is no environment of MiniGrid")
        env = gymnasium.make(env_id)
        env.reset(seed=seed)
        text = from_minigrid(env, robot=cell)
        world_from_text(text, name=str(output))  # So that nothing wrong is written.
        write_file(output, text)
    if json:
        print_json({"file": str(output)})
    else:
        show(str(output))


def _cell(text: str) -> tuple[int, int]:
    if not re.fullmatch(r"\d{1,4},\d{1,4}", text, re.ASCII):
        raise ConfigError(f"--robot {text}: write a cell as X,Y, e.g. 1,3")
    x, y = map(int, text.split(","))
    return x, y
