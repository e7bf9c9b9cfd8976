"""Explicit games: files become worlds, and mistakes in files are located."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from empo_core.config import RunConfig, WorldModelRef
from empo_core.config.yaml import CONFIG_LIMITS, FileTooLargeError, read_yaml
from empo_core.documents import read_document, world_in
from empo_core.errors import ConfigError, WorldError
from empo_core.protocols import WorldModel
from empo_tabular.plugin import TableParams, empo_components
from empo_tabular.table import Table
from empo_tabular.world import load_world, read_table, world_of
from empo_testing.world_model import WorldModelTests
from empo_worlds.queries import transition_probabilities

(COMPONENT,) = empo_components()
LIBRARY = TableParams.library

GAME = """\
name: doors
agents:
  - {name: ann, role: human, actions: [wait, left, right]}
  - {name: bot, role: robot, actions: [idle, open]}
states: [hall, l, r]
initial: hall
terminal: [l, r]
transitions:
  - {state: hall, actions: [left, open], to: {l: 2/3, hall: 1/3}, duration: 1/2}
  - {state: "*", actions: [[left, right], open], to: r}
  - {state: hall, to: {hall: 1}}
available:
  "*": {ann: [wait, left]}
  hall: {ann: [wait, left, right]}
goals:
  ann:
    - {name: left, states: l, weight: 0.25}
    - {name: any, states: [l, r]}
horizon: 7
"""


def load(folder: Path, text: str, max_steps: int | None = None) -> WorldModel:
    path = folder / "game.yaml"
    path.write_text(text)
    return load_world(TableParams(file=path, max_steps=max_steps))


@pytest.mark.parametrize("name", ["coma_pill", "commitment", "confirmation"])
class TestTable(WorldModelTests):
    @pytest.fixture
    def world(self, name: str) -> WorldModel:
        return load_world(TableParams(file=LIBRARY / f"{name}.yaml"))


def test_a_config_names_a_shipped_game_or_a_file(tmp_path: Path) -> None:
    chosen = WorldModelRef.model_validate("table/commitment")
    assert COMPONENT.load()(chosen.params).spec.name == "commitment"
    (tmp_path / "game.yaml").write_text(GAME)
    chosen = WorldModelRef.model_validate(
        {"name": "table", "params": {"file": "game.yaml", "max_steps": 3}},
        context={"base": tmp_path},
    )
    assert COMPONENT.load()(chosen.params).spec.horizon == 3
    assert "world_model" in RunConfig.model_fields


def test_a_file_says_what_the_world_does(tmp_path: Path) -> None:
    world = load(tmp_path, GAME)
    assert isinstance(world, WorldModel)
    assert world.spec.horizon == 7
    assert [goal.weight for goal in world.spec.goals] == [0.25, 0.5]
    assert world.describe(world.initial_state()) == "hall"
    hall = world.initial_state()[None]
    assert world.available(hall).tolist() == [[[True] * 3, [True, True, False]]]
    assert transition_probabilities(world, [0], [1, 1]) == [
        (pytest.approx(2 / 3), (1,)),
        (pytest.approx(1 / 3), (0,)),
    ]
    assert transition_probabilities(world, [0], [2, 1]) == [(1.0, (2,))]
    assert transition_probabilities(world, [0], [2, 0]) == [(1.0, (0,))]
    assert transition_probabilities(world, [1], [0, 0]) is None
    successors = world.transitions(hall, torch.tensor([[1, 1]]))
    assert successors.duration is not None
    assert successors.duration.tolist() == [0.5, 0.5]
    rows = torch.tensor([[0], [1], [2]], dtype=torch.int32)
    assert world.achieved(rows).tolist() == [[False, False], [True, True], [False, True]]


def test_json_is_read_too(tmp_path: Path) -> None:
    table = read_table(LIBRARY / "commitment.yaml")
    path = tmp_path / "game.json"
    path.write_text(json.dumps(table.model_dump(), indent=1))
    assert read_table(path) == table
    assert load_world(TableParams(file=path)).num_states == 11


def large_game(num_states: int, num_actions: int) -> dict[str, object]:
    """A game as large as well-known tables: one rule for each state and action."""
    names = [f"s{i}" for i in range(num_states)]
    rules = [
        {"state": names[i], "actions": [f"a{a}", "wait"], "to": names[(7 * i + a) % num_states]}
        for i in range(num_states)
        for a in range(num_actions)
    ]
    return {
        "agents": [
            {"name": "h", "role": "human", "actions": [f"a{a}" for a in range(num_actions)]},
            {"name": "r", "role": "robot", "actions": ["wait"]},
        ],
        "states": names,
        "initial": "s0",
        "horizon": 3,
        "transitions": rules,
        "goals": {"h": [{"name": "any", "states": names}]},
    }


def test_a_table_may_be_larger_than_a_config(tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    game = large_game(500, 6)
    path.write_text(json.dumps(game))
    assert path.stat().st_size > CONFIG_LIMITS.bytes
    name, world = world_in(path, None)
    rows = torch.arange(500, dtype=torch.int32)[:, None]
    assert name == "table"
    successors = world.transitions(rows).states.reshape(500, 6)
    assert torch.equal(successors, (7 * rows + torch.arange(6)) % 500)
    with pytest.raises(FileTooLargeError, match="131,072 bytes;"):
        read_yaml(path)
    assert read_document(path) is None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"to": "s1"', '"to": "sx"', r"transitions\.\d+\.to\.sx: there is no state"),
        ('"horizon": 3', '"horizon": 3, "horizon": 4', r"key 'horizon' is already given"),
        ('"horizon": 3', '"horizon": 9007199254740993', r"horizon: is beyond 2\^53"),
        ('"horizon": 3', '"horizon": "\\ud800"', r"horizon: half of a surrogate pair"),
        ('"horizon": 3', '"horizon": NaN', r"horizon: .*NaN"),
    ],
)
def test_mistakes_in_large_json_are_located(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    text = json.dumps({"description": "x" * CONFIG_LIMITS.bytes} | large_game(3, 8), indent=1)
    path = tmp_path / "game.json"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=rf":\d+:\d+: .*({reason})"):
        read_table(path)


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ("initial: hall", "initial: hal", "6:1: initial", "did you mean 'hall'?"),
        ("initial: hall", "initial: l", "6:1: initial", "episodes would end at once"),
        ("initial: hall", "initial: {hall: 1/2, l: 1/2}", ":6:22: initial.l", "end at once"),
        ("initial: hall", "initial: {hall: 1/2}", "6:1: initial", "sum to 0.5, not to 1"),
        ("initial: hall\n", "", "1:1: initial", ""),
        ("horizon: 7", "horizons: 7", "19:1: horizons", "horizon"),
        ("horizon: 7", "horizon: 0", "19:1: horizon", ""),
        ("[l, r]\ntrans", "[l, q]\ntrans", "7:15: terminal.1", "no state 'q'"),
        ("{l: 2/3, hall", "{l: 2/4, hall", ":9:", "sum to 0.833333333333, not to 1"),
        ("{l: 2/3, hall", "{l: 2/0, hall", ":9:", "a fraction such as 1/3"),
        ("{l: 2/3, hall", "{l: two, hall", ":9:", "a fraction such as 1/3"),
        ("{l: 2/3, hall", "{m: 2/3, hall", ":9:", "no state 'm'"),
        ("[left, open], to: {", "[left], to: {", ":9:", "one entry per agent (2: ann, bot)"),
        ("[left, open], to: {", "[lift, open], to: {", ":9:", "did you mean 'left'?"),
        ("{state: hall, to", "{state: l, to", ":11:", "state 'l' is terminal"),
        ("{state: hall, to", "{state: hall, actions: [wait, idle], to", ":8:", "no rule says"),
        ("states: l,", "states: m,", ":17:", "no state 'm'"),
        ("  ann:\n    -", "  bot:\n    -", ":16:", "no human 'bot'"),
        ("  hall: {ann", "  hall: {amy", ":14:", "no agent 'amy'"),
        ("  hall: {ann: [wait", "  hall: {ann: [walk", ":14:", "no action of ann 'walk'"),
        ("duration: 1/2", "duration: 0", ":9:", "duration"),
        ("states: [hall, l, r]", "states: [hall, l, r, l]", "5:22: states.3", "two states"),
        ("states: [hall, l, r]", 'states: [hall, l, r, "*"]', "5:22: states.3", "any state"),
        ("[idle, open]", "[idle, idle]", "4:", "two actions named 'idle'"),
        ("0.25", "-1", ":17:", ""),
        ("name: left, states", "name: any, states", ":18:", "two goals named 'any'"),
    ],
)
def test_every_mistake_is_located(
    tmp_path: Path, old: str, new: str, place: str, reason: str
) -> None:
    assert old in GAME
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GAME.replace(old, new, 1))
    first = str(caught.value).splitlines()[0]
    assert place in first.partition("game.yaml")[2]
    assert reason in first


def test_a_rule_that_never_applies_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"12:5: transitions\.3: never applies"):
        load(tmp_path, GAME.replace("\navailable", '\n  - {state: "*", to: l}\navailable'))


def test_a_table_made_in_python_is_checked_too() -> None:
    with pytest.raises(WorldError, match=r"initial.begin: .*'begin'"):
        world_of(
            read_table(LIBRARY / "commitment.yaml").model_copy(update={"initial": {"begin": 1.0}})
        )


def test_a_game_with_too_many_pairs_is_refused_before_it_is_built(tmp_path: Path) -> None:
    agents = "\n".join(f"  - {{name: a{i}, role: robot, actions: [b, c, d, e]}}" for i in range(12))
    text = f"agents:\n{agents}\nstates: [s]\ninitial: s\ntransitions: [{{state: s, to: s}}]\n"
    with pytest.raises(ConfigError, match="16777216 pairs"):
        load(tmp_path, text)


def test_the_schema_admits_fractions_and_short_forms() -> None:
    properties = Table.model_json_schema()["$defs"]["TableRule"]["properties"]
    assert "string" in str(properties["to"])
    assert "string" in str(properties["state"])


def test_a_state_and_a_goal_are_described_by_the_states_that_they_are(tmp_path: Path) -> None:
    spec = load(tmp_path, GAME).spec
    features = spec.featurizer(torch.tensor([[2], [0]], dtype=torch.int32))
    assert features.globals.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert features.flat().shape == (2, spec.featurizer.shape.flat)
    assert [goal.features for goal in spec.goals] == [(0, 1, 0), (0, 1, 1)]
    assert spec == load(tmp_path, GAME).spec
    with pytest.raises(WorldError, match=r"shape \[state, 1\]"):
        spec.featurizer(torch.zeros(2, 3, dtype=torch.int32))


def test_every_symmetry_is_looked_at_also_after_a_wrong_one(tmp_path: Path) -> None:
    text = GAME + (
        "symmetries:\n"
        "  - {name: one, agents: {ann: carl}}\n"
        "  - {name: two, agents: {bot: dora}}\n"
        "  - {name: three, states: {hall: cellar}}\n"
    )
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    for number, name in enumerate(("carl", "dora", "cellar")):
        (line, *_) = [line for line in str(error.value).splitlines() if f"'{name}'" in line]
        assert f"symmetries.{number}" in line
