"""Games in a terminal, by keys; and in a pipe, by the names of actions in lines."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Iterable, Iterator, Sequence

import torch
from rich.console import Console, Group, RenderableType
from rich.text import Text

from empo_core.errors import ConfigError
from empo_inspector.action_keys import ARROWS, signs_of
from empo_inspector.explanation import policy_table
from empo_inspector.game import Game
from empo_pictures.pictures import robot_policies

UNDO, END = ("u", "\x7f", "\b"), ("q", "\x04")
_KEY = re.compile(r"\x1b(?:[\[O][0-9;]*[A-Za-z~]?)?|.", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(?:[\[O][0-9;]*)?")
REST_S = 0.05
"""Seconds within which the rest of a key that sends several characters arrives."""
SIGNAL_S = 0.2
"""Seconds after which Ctrl-C is looked for again.

Python runs its handlers between instructions. A signal that comes after the last of them and before
the system waits for a key would otherwise wait for that key, too.
"""


class Session:
    """A game, its one player, and a console."""

    def __init__(self, game: Game, console: Console, *, guess: bool, has_keys: bool) -> None:
        """Take what is shown.

        Args:
            game: The game; its first played agent is the user's.
            console: Where to show it.
            guess: Whether to show policies of states that the user has left, and of no others.
            has_keys: Whether words are keys, of which one may press a wrong one, or lines.
        """
        self._game, self._console = game, console
        self._guess, self._has_keys = guess, has_keys
        self._player = game.world.spec.agents[game.played[0]]
        names = self._player.actions
        lines = {name: action for action, name in enumerate(names)}
        self._keys, self._signs = keys_of(names) if has_keys else (lines, {})
        self._shows_policy = guess
        self._note = ""

    def play(self, words: Iterable[str]) -> None:
        """Apply each command, until one ends the game or the input ends.

        Raises:
            ConfigError: if a line is no action that can be taken.
        """
        self._show()
        for word in words:
            if word in END and word not in self._keys:
                return
            try:
                self._note = self._obey(word)
            except ConfigError as error:
                if not self._has_keys:
                    raise
                self._note = str(error)
            self._show()

    def _obey(self, word: str) -> str:
        if word in self._keys:
            self._game.step({self._game.played[0]: self._keys[word]})
        elif word == "p":
            self._shows_policy = not self._shows_policy
        elif word in UNDO:
            return "" if self._game.undo() else "this is the beginning"
        else:
            names = ", ".join(self._player.actions)
            raise ConfigError(f"{word!r} is no action and none of p, u and q; actions: {names}")
        return ""

    def _show(self) -> None:
        game, parts = self._game, self._state()
        if self._shows_policy:
            parts += self._policies()
        actions = [
            f"{self._signs.get(action, '')} {name}".strip()
            for action, name in enumerate(self._player.actions)
            if not game.now.is_over and game.now.available[game.played[0]][action]
        ]
        parts += [Text("   ".join([*actions, "[p policy, u undo, q end]"])), Text(self._note)]
        self._console.clear()
        self._console.print(Group(*parts))

    def _state(self) -> list[RenderableType]:
        game, spec = self._game, self._game.world.spec
        turn, me = game.now, game.played[0]
        head = f"{spec.name}: you are {self._player.name}"
        goal = game.goals[spec.humans.index(me)] if me in spec.humans else None
        if goal is not None:
            word = "have reached" if goal in game.reached() else "want"
            head += f" and {word} {spec.goals[goal].name!r}"
        when = f"time {turn.time}"
        if spec.horizon is not None:
            when += f", {spec.horizon - turn.time} steps left"
        lines = [when + ("; the episode is over" if turn.is_over else "")]
        if game.actions:
            pairs = zip(spec.agents, game.actions[-1], strict=True)
            did = ", ".join(f"{agent.name} {agent.actions[action]}" for agent, action in pairs)
            lines.append(f"before: {did}")
        row = torch.tensor(turn.row, dtype=spec.state_dtype)
        return [Text(head, style="bold"), *map(Text, lines), Text(game.world.describe(row))]

    def _policies(self) -> list[RenderableType]:
        game, spec = self._game, self._game.world.spec
        if self._guess and not game.actions:
            return [Text("The robots' policy is hidden until you have moved.")]
        turn = game.turns[-2] if self._guess else game.now
        if turn.is_over:
            return []
        head = Text("Robots' policy before that step" if self._guess else "Robots' policy")
        policies = robot_policies(spec, turn.robots).items()
        return [head, *(policy_table(spec.agents[robot], chances) for robot, chances in policies)]


def keys_of(names: Sequence[str]) -> tuple[dict[str, int], dict[int, str]]:
    """Actions by the keys for them, and the sign of one key of each.

    The digits stand for the first actions, the arrows and WASD for those that are directions.
    """
    keys = {str(action + 1): action for action in range(min(9, len(names)))}
    signs = dict(enumerate(signs_of(names)))
    for arrow in ARROWS:
        action = arrow.action(names)
        if action is not None:
            keys |= dict.fromkeys((f"\x1b[{arrow.end}", f"\x1bO{arrow.end}", arrow.letter), action)
    return keys, signs


def play_by_keys(game: Game, console: Console, *, guess: bool) -> None:
    """Let somebody at the terminal play, which is afterwards as it was before."""
    import termios  # Not on Windows, where lines are read instead.
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        with console.screen():
            Session(game, console, guess=guess, has_keys=True).play(pressed(descriptor))
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def pressed(descriptor: int) -> Iterator[str]:
    """Keys, as the characters that the terminal sends for each."""
    text = ""
    while data := _read(descriptor):
        text += data.decode(errors="replace")
        keys = _KEY.findall(text)
        if _UNFINISHED.fullmatch(keys[-1]) and select.select([descriptor], [], [], REST_S)[0]:
            continue
        yield from keys
        text = ""


def _read(descriptor: int) -> bytes:
    """What comes next, with Ctrl-C looked for while nothing does."""
    while not select.select([descriptor], [], [], SIGNAL_S)[0]:
        pass
    return os.read(descriptor, 1024)
