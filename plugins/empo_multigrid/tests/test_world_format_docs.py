"""The reference page of the world format is complete, and its examples load."""

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from empo_multigrid.file.mapcodes import all_codes
from empo_multigrid.file.worldfile import (
    ActionRule,
    AgentSettings,
    GoalEntry,
    ObjectSettings,
    WorldFile,
)
from empo_multigrid.layout import ACTION_NAMES, ACTION_SETS
from empo_multigrid.world import world_from_text

PAGE = (Path(__file__).parents[3] / "docs/reference/world_format.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
CODE = re.compile(r"`([^`]+)`")


def test_the_page_has_examples() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_loads(block: str) -> None:
    assert world_from_text(block).spec.agents


def test_the_table_of_codes_is_that_of_the_map() -> None:
    table = PAGE.partition("| code |")[2].partition("\n\n")[0]
    first_column = [line.split("|")[1] for line in table.splitlines()[2:]]
    written = {code for cell in first_column for code in CODE.findall(cell)}
    expected = {
        f"{code[0]}c" if f"{code[0]}c" in written and code not in written else code
        for code in all_codes()
    }
    assert written == expected - {"KB"}
    assert "Blue is `KB`" in table


@pytest.mark.parametrize("model", [WorldFile, GoalEntry, AgentSettings, ObjectSettings, ActionRule])
def test_every_key_is_explained(model: type[BaseModel]) -> None:
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    assert set(model.model_fields) <= set(CODE.findall(prose))


def test_the_table_of_action_sets_is_that_of_the_world() -> None:
    for name, actions in ACTION_SETS.items():
        assert f"| `{name}` | {', '.join(ACTION_NAMES[code] for code in actions)} |" in PAGE
