"""Help and errors name pages of the documentation, which exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core import errors
from empo_core.cli.app import app
from empo_core.cli.output import reported

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {getattr(error, "page", "") for error in vars(errors).values()} - {""}


def test_help_names_the_index_and_the_page_of_commands() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).stdout
    assert "docs/README.md" in shown
    assert "docs/reference/cli.md" in shown


def test_an_error_ends_with_the_page_of_its_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match=r"^3$"), reported():
        raise errors.NonFiniteError("a loss is not finite")
    page = "docs/how-to/learn_a_policy.md#when-it-does-not-learn"
    assert capsys.readouterr().err == f"a loss is not finite\nSee {page}\n"


def test_an_error_that_says_it_all_names_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match=r"^2$"), reported():
        raise errors.ConfigError("x.yaml:1:1: no")
    assert capsys.readouterr().err == "x.yaml:1:1: no\n"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_pages_of_errors_exist(page: str) -> None:
    path, _, anchor = page.partition("#")
    lines = (DOCS / path).read_text(encoding="utf-8").splitlines()
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in lines if line[:1] == "#"}
    assert not anchor or anchor in headings
