"""Help and errors name pages of the documentation, which exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core import errors
from empo_core.cli.app import app
from empo_core.cli.output import address, reported

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    error.page
    for error in vars(errors).values()
    if isinstance(error, type) and getattr(error, "page", None)
}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed core whose metadata name a site."""
    info = tmp_path / "empo_core-9.dist-info"
    info.mkdir()
    urls = "Project-URL: Source, https://example.org/source\n"
    urls += "Project-URL: Documentation, https://example.org/empo/\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: empo-core\nVersion: 9\n{urls}")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_page_is_a_path_in_the_repository() -> None:
    assert address("reference/errors.md#plugins") == "docs/reference/errors.md#plugins"


@pytest.mark.usefixtures("published")
def test_a_page_is_an_address_where_the_package_names_a_site() -> None:
    expected = "https://example.org/empo/docs/reference/errors.html#plugins"
    assert address("reference/errors.md#plugins") == expected


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
