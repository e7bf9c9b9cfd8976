"""Games: random numbers in the order that is documented, undo, records, pipes and terminals."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.errors import ConfigError, StorageError
from empo_core.protocols import WorldModel
from empo_exact.plugin import ExactParams
from empo_exact.policies import SolvedHumans, SolvedRobots
from empo_exact.solve import solve
from empo_inspector.game import Game, Policies
from empo_inspector.game_record import record_of, replay
from empo_inspector.pcg32 import Pcg32
from empo_inspector.play_terminal import keys_of, pressed

# One robot; two; two humans; chance; no grid.
STEPS = {
    "multigrid/free_the_human": 6,
    "multigrid/two_robots": 4,
    "multigrid/small_trolley": 3,
    "multigrid/unsteady_room": 4,
    "table/confirmation": None,
}
each_world = pytest.mark.parametrize("name", STEPS)


def world_of(name: str, steps: int | None) -> WorldModel:
    params = {} if steps is None else {"max_steps": steps}
    world: WorldModel = build(WorldModelRef.model_validate({"name": name, "params": params}))
    return world


@cache
def solved(name: str) -> tuple[WorldModel, Policies]:
    result = solve(world_of(name, STEPS[name]), ExactParams(keep="all"))
    return result.problem.world, (SolvedRobots(result), SolvedHumans(result))


def played(name: str, seed: int, *, max_steps: int = 6, player: int | None = None) -> Game:
    """A game in which the player takes the available actions in turn."""
    world, policies = solved(name)
    me = world.spec.humans[0] if player is None else player
    game = Game(world, policies, [me], seed=seed)
    while not game.now.is_over and len(game.actions) < max_steps:
        own = [action for action, can in enumerate(game.now.available[me]) if can]
        game.step({me: own[(seed + len(game.actions)) % len(own)]})
    return game


def save(file: Path, game: Game) -> None:
    file.write_text(record_of(game, theory=None).model_dump_json())


def test_random_numbers_are_used_in_the_documented_order() -> None:
    game = played("multigrid/small_trolley", seed=5, max_steps=2)
    world, spec, random = game.world, game.world.spec, Pcg32(5)
    first, second = spec.humans
    for human, goal in zip(spec.humans, game.goals, strict=True):
        weights = [spec.goals[own].weight for own in spec.goals_of(human)]
        assert spec.goals_of(human)[random.draw([w / sum(weights) for w in weights])] == goal
    robots, humans = solved("multigrid/small_trolley")[1]
    assert spec.horizon is not None
    for time, (turn, actions) in enumerate(zip(game.turns[:-1], game.actions, strict=True)):
        row, left = torch.tensor([turn.row], dtype=spec.state_dtype), spec.horizon - time
        of_second = (
            humans.policy(row, torch.full((len(row),), left))[0, game.goals[1]].double().tolist()
        )
        assert random.draw(of_second) == actions[second]
        of_robot = robots.policy(row, torch.tensor([left]))[0].double().tolist()
        assert random.draw(of_robot) == actions[spec.robots[0]]
        found = world.transitions(row, torch.tensor([actions]))
        item = random.draw(found.prob.double().tolist())
        assert found.states[item].tolist() == list(game.turns[time + 1].row)
    assert first not in (second, *spec.robots)
    assert random.state == game.now.random


def test_others_act_as_often_as_their_policy_says() -> None:
    world, policies = solved("multigrid/free_the_human")
    games = [Game(world, policies, world.spec.humans, seed=seed) for seed in range(200)]
    counts = torch.zeros(world.spec.num_robot_actions)
    for game in games:
        game.step({world.spec.humans[0]: 0})
        counts[game.actions[0][world.spec.robots[0]]] += 1
    torch.testing.assert_close(
        counts / len(games), torch.tensor(games[0].turns[0].robots), atol=0.08, rtol=0
    )


def test_a_played_robot_leaves_the_other_its_conditional_policy() -> None:
    world, policies = solved("multigrid/two_robots")
    first, second = world.spec.robots
    fastest, (human,) = world.spec.num_actions[first], world.spec.humans
    for seed in range(20):
        game = Game(world, policies, [first], seed=seed)
        game.step({first: 2})
        turn, random = game.turns[0], Pcg32(0)
        random.state = turn.random
        assert random.draw(turn.others[human]) == game.actions[0][human]
        given = turn.robots[2::fastest]
        drawn = random.draw([chance / sum(given) for chance in given])
        assert (game.actions[0][first], game.actions[0][second]) == (2, drawn)


@each_world
def test_undo_leads_back_and_the_same_action_to_the_same_state(name: str) -> None:
    game = played(name, seed=3)
    last, before, told = game.now, game.turns[-2], game.actions[-1][game.played[0]]
    assert game.undo()
    assert game.now == before
    game.step({game.played[0]: told})
    assert game.now == last
    while game.undo():
        pass
    assert len(game.turns) == 1
    assert list(game.now.row) == game.world.initial_state().tolist()


@each_world
def test_a_record_is_played_again_row_by_row(name: str, tmp_path: Path) -> None:
    world, policies = solved(name)
    for seed in range(5):
        game = played(name, seed)
        save(tmp_path / "game.json", game)
        again = replay(tmp_path / "game.json", world, policies, None)
        assert (again.turns, again.actions) == (game.turns, game.actions)


def test_without_a_run_the_others_act_evenly_and_pursue_nothing(tmp_path: Path) -> None:
    world = world_of("multigrid/bystander", None)
    me, (robot, *_) = world.spec.humans[0], world.spec.robots
    game = Game(world, None, [me], seed=1)
    assert game.now.robots == [1 / len(game.now.robots)] * len(game.now.robots)
    assert len(game.now.others) + len(world.spec.robots) == len(world.spec.agents)
    while not game.now.is_over:
        game.step({me: 0})
    with pytest.raises(ConfigError, match=r"^the episode"):
        game.step({me: 0})
    save(tmp_path / "game.json", game)
    assert replay(tmp_path / "game.json", world, None, None).turns == game.turns
    assert Game(world, None, [robot]).goals == (None,) * len(world.spec.humans)


def change_row(record: dict[str, Any]) -> None:
    record["steps"][1]["row"][0] += 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_row, "step 0: .*follow"),
        (lambda r: r["steps"][0].update(joint=0), "robot 0 (.*) does '.*', and not 'still'"),
        (lambda r: r["steps"][0].update(joint=16), "joint action 16"),
        (lambda r: r["steps"][0].update(joint=None), "all states"),
        (lambda r: r["steps"][0].update(row=[1]), "'Free the human'"),
        (lambda r: r["steps"][0]["row"].__setitem__(0, 10**6), "no state"),
        (lambda r: r.update(world="Elsewhere"), "'Elsewhere'"),
        (lambda r: r.update(theory="0"), "another theory"),
        (lambda r: r.update(goals=[17]), "goal 17 .*human 1"),
        (lambda r: r.update(goals=[]), r"goals: \[\] should be"),
        (lambda r: r.update(played=[5]), "0 to 1"),
        (lambda r: r.update(time=7), "the end"),
        (lambda r: r.update(seed=-1), "game: seed"),
        (lambda r: r.update(code="print()"), "game: code"),
        (lambda r: r.update(steps=[]), "game: steps"),
    ],
)
def test_a_tampered_record_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "game.json"
    save(file, played("multigrid/free_the_human", seed=0))
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))
    with pytest.raises((ConfigError, StorageError), match=message):
        replay(file, *solved("multigrid/free_the_human"), None)


def test_a_huge_record_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "game.json").write_text(" " * 5_000_000)
    with pytest.raises(StorageError, match="larger than"):
        replay(tmp_path / "game.json", *solved("multigrid/free_the_human"), None)


@pytest.mark.parametrize(
    ("names", "signs"),
    [
        (("still", "left", "right", "forward", "toggle"), "↓←→↑5"),
        (("N", "W", "S", "E", "pass"), "↑←↓→5"),
        (("use", "give_0"), "12"),
    ],
)
def test_arrows_are_for_directions_and_digits_for_all(names: Sequence[str], signs: str) -> None:
    keys, shown = keys_of(names)
    assert "".join(shown.values()) == signs
    assert [keys[str(action + 1)] for action in range(len(names))] == list(range(len(names)))
    for arrow, sequence in zip("↑↓→←", ("\x1b[A", "\x1bOB", "d", "a"), strict=True):
        assert (sequence in keys) == (arrow in signs)
        assert sequence not in keys or shown[keys[sequence]] == arrow


def piped(place: str, *options: object, lines: Sequence[str] = ()) -> Result:
    words = ["play", place, *map(str, options)]
    return CliRunner().invoke(app, words, input="\n".join(lines), env={"COLUMNS": "100"})


def test_a_pipe_plays_a_run_and_leaves_a_record_and_an_animation(
    run_dir: str, tmp_path: Path
) -> None:
    record, gif = tmp_path / "game.json", tmp_path / "game.gif"
    lines = ["left", "u", "right", "forward", "q", "never read"]
    done = piped(run_dir, "--goal", "yard", "--record", record, "--gif", gif, lines=lines)
    assert done.exit_code == 0, done.stderr
    assert "you are human 1 (yellow) and want 'yard'" in done.stdout
    assert "time 2, 4 steps left" in done.stdout
    assert "probability" not in done.stdout
    assert json.loads(record.read_text())["played"] == [1]
    with Image.open(gif) as film:
        assert film.n_frames == 3  # type: ignore[attr-defined]
    assert "2 steps follow from seed 0" in piped(run_dir, "--replay", record).stdout
    assert piped("multigrid/free_the_human", "--replay", record).exit_code == 2


def test_the_policy_is_shown_on_demand_and_to_guessers_after_their_move(run_dir: str) -> None:
    shown = piped(run_dir, lines=["p", "p", "still"]).stdout
    assert shown.count("Robots' policy\n") == 1
    guessed = piped(run_dir, "--guess", lines=["still"]).stdout
    before, _, after = guessed.partition("hidden until you have moved")
    assert "probability" not in before
    assert after.count("Robots' policy before that step") == 1
    # The policies are of the same state: the one that was left.
    assert (
        shown.partition("Robots' policy\n")[2].splitlines()[:8]
        == (after.partition("before that step\n")[2].splitlines()[:8])
    )


def test_a_robot_can_be_played(run_dir: str) -> None:
    done = piped(run_dir, "--as", "robot", lines=["forward"])
    assert "you are robot 0 (grey)\n" in done.stdout
    assert "before: robot 0 (grey) forward, human 1 (yellow) " in done.stdout


def test_a_world_needs_no_run() -> None:
    done = piped("bushworld/two_humans_one_robot", "--human", "human 2", lines=["N"] * 3)
    assert done.exit_code == 0, done.stderr
    assert "time 3, 0 steps left; the episode is over" in done.stdout


@pytest.mark.parametrize(
    ("options", "lines", "message"),
    [
        ([], ["fly"], "'fly' is no action and none of p, u and q; actions: option_1"),
        ([], ["option_2"], "human cannot do 'option_2' now"),
        (["--goal", "x"], [], "goals of human are 'option_1'"),
        (["--as", "x"], [], "'x' is not one agent; there are ['human', 'robot']"),
        (["--gif", "x.gif"], [], "cannot draw itself"),
        (["--gif", "x.png"], [], "ends in .gif"),
        (["--record", "missing/x.json"], [], "missing/x.json"),
        (["--replay", "x.json", "--seed", "1"], [], "only --gif fits it"),
        (["--replay", "x.json"], [], "x.json: cannot be read"),
    ],
)
def test_what_cannot_be_played_is_said(options: list[str], lines: list[str], message: str) -> None:
    done = piped("table/menu_size", *options, lines=lines)
    assert "Traceback" not in done.stderr
    assert done.exit_code in (2, 3)
    assert message in done.stderr


def test_a_place_that_does_not_exist_is_named() -> None:
    assert "nowhere: " in piped("nowhere").stderr


class Terminal:
    """A command at a terminal of its own, and the keys pressed there."""

    def __init__(self, *words: str) -> None:
        self._leader, self._follower = pty.openpty()
        self.before = termios.tcgetattr(self._follower)
        self.shown = ""
        # The first terminal that the leader of a session opens is where its Ctrl-C comes from.
        script = f'exec "$@" <>{os.ttyname(self._follower)} >&0 2>&0'
        self.process = subprocess.Popen(
            ["sh", "-c", script, "sh", sys.executable, "-m", "empo_core", *words],
            start_new_session=True,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        )

    def press(self, keys: str, until: str) -> None:
        """Press keys and wait for what they lead to."""
        os.write(self._leader, keys.encode())
        self.wait_for(until)

    def wait_for(self, words: str) -> None:
        known = len(self.shown)
        while words not in self.shown[known:]:
            assert select.select([self._leader], [], [], 60)[0], f"no {words!r} in {self.shown}"
            self.shown += os.read(self._leader, 65536).decode()

    def end(self) -> int:
        """The exit code, at the end."""
        code = self.process.wait(60)
        assert termios.tcgetattr(self._follower) == self.before
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._leader)
        os.close(self._follower)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal("play", "multigrid/trivial", "--record", str(tmp_path / "game.json"))
    try:
        opened.wait_for("u undo")
        yield opened
    finally:
        opened.close()


def test_arrow_keys_play_at_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.press("\x1b[C", "human 1 (yellow) right")
    terminal.press("\x1bOD", "human 1 (yellow) left")
    terminal.press("u", "time 1")
    terminal.press("x", "'x' is no action")
    terminal.press("4", "human 1 (yellow) forward")
    terminal.press("q", "game.json")
    assert terminal.end() == 0
    record = json.loads((tmp_path / "game.json").read_text())
    assert [step["joint"] and step["joint"] // 4 for step in record["steps"]] == [2, 3, None]


def test_ctrl_c_that_does_not_wake_the_wait_for_a_key_ends_it_nevertheless() -> None:
    reader, writer = os.pipe()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Some shells ignore it.

    def interrupt() -> None:
        # A thread that takes the signal leaves the main thread asleep, as does a signal that comes
        # just before it falls asleep.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.kill(os.getpid(), signal.SIGINT)

    def wait() -> None:
        signals.start()
        next(pressed(reader))

    signals = threading.Timer(0.3, interrupt)
    late = threading.Timer(10, os.write, (writer, b"w"))  # Ends a wait that the signal did not.
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        late.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert late.is_alive()
    finally:
        late.cancel()
        signals.join()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
        os.close(reader)
        os.close(writer)


def test_ctrl_c_restores_the_terminal_and_keeps_the_record(
    terminal: Terminal, tmp_path: Path
) -> None:
    terminal.press("w", "human 1 (yellow) forward")
    terminal.press("\x03", "interrupted")
    assert terminal.end() == 130
    assert terminal.shown.rindex("\x1b[?1049l") > terminal.shown.rindex("\x1b[?1049h")
    assert len(json.loads((tmp_path / "game.json").read_text())["steps"]) == 2
