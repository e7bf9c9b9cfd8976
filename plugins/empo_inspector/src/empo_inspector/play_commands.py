"""``empo play``; imports nothing heavy before it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import Debug, only_ours_on_stdout, show, stdout
from empo_core.documents import library_world, world_in
from empo_core.errors import ConfigError
from empo_core.runs.atomic import digest, write_file
from empo_inspector.pcg32 import MOST_SEED
from empo_theory.parameters import HumanTheory, theory_data

if TYPE_CHECKING:
    from empo_core.protocols import WorldModel
    from empo_core.types import WorldSpec
    from empo_inspector.game import Game, Policies


def play(
    place: Annotated[
        str,
        typer.Argument(
            metavar="RUN_DIR|WORLD",
            help="A run's directory, a world file, or a world's name as 'empo worlds' lists it.",
            show_default=False,
        ),
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            "--human",
            "--as",
            metavar="NAME",
            help="Who you are: 'human', 'robot', or how an agent's name begins; the first human.",
            show_default=False,
        ),
    ] = None,
    goal: Annotated[
        str | None, typer.Option(help="Your goal; by weight if left out.", show_default=False)
    ] = None,
    guess: Annotated[
        bool, typer.Option("--guess", help="Show the robots' policy only after each move.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_SEED, help="Seeds the episode (0).", show_default=False),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the game as JSON.", show_default=False),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check a record, and play nothing.", show_default=False),
    ] = None,
    gif: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the game as an animation.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """Act for an agent of a world, in the terminal, among the policies of a run."""
    with only_ours_on_stdout():
        from empo_inspector.game import Game
        from empo_inspector.game_record import replay as checked

        world, policies, theory = _opened(place)
        if replay is not None:
            if guess or any(option is not None for option in (agent, goal, seed, record)):
                raise ConfigError("--replay takes everything from the record; only --gif fits it")
            game = checked(replay, world, policies, theory)
            show(f"{replay}: ok, {len(game.actions)} steps follow from seed {game.seed}")
            _finish(game, _write(game, None, None, gif))
            return
        player = _agent(world.spec, agent or "human")
        chosen = {} if goal is None else {player: _goal(world.spec, player, goal)}
        game = Game(world, policies, [player], seed=seed or 0, goals=chosen)
        _write(game, theory, record, gif)  # What cannot be written is refused before the game.
        try:
            _play(game, guess)
        finally:  # Also of a game that was broken off.
            _finish(game, _write(game, theory, record, gif))


def _opened(place: str) -> tuple[WorldModel, Policies | None, str | None]:
    """A world, and of a run its policies and a digest of its theory."""
    from empo_core.experiment import Experiment

    world_model, path = library_world(place) or (None, Path(place))
    if not path.exists():
        raise ConfigError(f"{place}: there is no such run, and no such world; see: empo worlds")
    if not path.is_dir():
        return world_in(path, world_model)[1], None, None
    run = Experiment.load(path)
    config, world, policies = run.config, run.context.world, run.policies()
    if world is None or not isinstance(policies, tuple):
        raise ConfigError(f"{place}: this run has no world of humans and goals to play in")
    theory = getattr(config.algorithm.params, "theory", None)
    if not isinstance(theory, HumanTheory):
        return world, policies, None
    return world, policies, digest(theory_data(theory))


def _agent(spec: WorldSpec, name: str) -> int:
    """The first agent of a role, or the one whose name begins so."""
    for agents in (spec.humans, spec.robots):
        if agents and spec.agents[agents[0]].role == name:
            return agents[0]
    names = [agent.name for agent in spec.agents]
    matches = [full_name for full_name in names if full_name == name] or [
        n for n in names if n.startswith(name)
    ]
    if len(matches) != 1:
        raise ConfigError(f"--human, --as: {name!r} is not one agent; there are {names}")
    return names.index(matches[0])


def _goal(spec: WorldSpec, player: int, name: str) -> int:
    """A goal of the player by its name."""
    goals = {spec.goals[goal].name: goal for goal in spec.goals_of(player)}
    if name not in goals:
        names = ", ".join(map(repr, goals)) or "none"
        raise ConfigError(f"--goal {name!r}: goals of {spec.agents[player].name} are {names}")
    return goals[name]


def _play(game: Game, guess: bool) -> None:
    """Play by keys, or by lines from a pipe and where there are no terminals as we know them."""
    from empo_inspector.play_terminal import Session, play_by_keys

    if sys.stdin is None or sys.stdin.closed:
        raise ConfigError("standard input is closed; play at a terminal, or pipe in actions")
    if sys.stdin.isatty() and os.name == "posix":
        play_by_keys(game, stdout(), guess=guess)
    else:
        lines = (line.decode(errors="replace").strip() for line in sys.stdin.buffer)
        Session(game, stdout(), guess=guess, has_keys=False).play(filter(None, lines))


def _write(game: Game, theory: str | None, record: Path | None, gif: Path | None) -> Iterator[Path]:
    """Write a game; the files."""
    from empo_inspector.game_record import record_of
    from empo_pictures.pictures import EPISODE_FPS, write_gif

    if record is not None:
        write_file(record, record_of(game, theory).model_dump_json() + "\n")
    if gif is not None:
        if gif.suffix.lower() != ".gif":
            raise ConfigError(f"--gif {gif}: the name of an animation ends in .gif")
        write_gif(game.frames(), gif, EPISODE_FPS)
    return filter(None, (record, gif))


def _finish(game: Game, files: Iterable[Path]) -> None:
    """Say what has come of a game."""
    spec = game.world.spec
    for human, goal in zip(spec.humans, game.goals, strict=True):
        if goal is not None:
            at = game.reached().get(goal)
            end = "not reached" if at is None else f"reached at time {at}"
            show(f"{spec.agents[human].name}: {spec.goals[goal].name!r}, {end}")
    for file in files:
        show(str(file))
