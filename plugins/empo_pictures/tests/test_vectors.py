"""SVG and PDF for papers, which look the same without any font."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("fpdf")

from empo_core.errors import ConfigError, StorageError
from empo_pictures.canvas import PAPER, Pen, svg
from empo_pictures.vectors import outlined, pdf_bytes, write_pdf, write_svg


def paint(pen: Pen) -> None:
    pen.circle((10, 10), 5, (1, 2, 3))
    pen.text((20, 30), "везде <& $X_h$", 10, halo=PAPER)


@pytest.fixture
def document() -> str:
    return svg(100, 60, paint)


def test_texts_become_paths_where_they_were_and_keep_their_words(document: str) -> None:
    texts = [element for element in ElementTree.fromstring(document) if element.text]
    root = ElementTree.fromstring(outlined(document))
    groups = [element for element in root if element.get("aria-label")]
    assert "text" not in {element.tag.rpartition("}")[2] for element in root.iter()}
    assert [group.get("aria-label") for group in groups] == [text.text for text in texts]
    for text, group in zip(texts, groups, strict=True):
        *_, x, y = group.get("transform", "").removesuffix(")").split()
        assert (float(x), float(y)) == pytest.approx(
            (float(text.get("x", 0)), float(text.get("y", 0)))
        )
        # The halo lies below the letters.
        assert [path.get("stroke") for path in group] == ["#ffffff", "none"]
    others = [element.tag.rpartition("}")[2] for element in root if element not in groups]
    assert others == ["circle"]


def test_outlines_are_as_wide_as_the_text_was() -> None:
    narrow, wide = (
        outlined(
            '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="9">'
            '<text x="50" y="8" font-size="8" text-anchor="end" '
            f'textLength="{length}">ab</text></svg>'
        )
        for length in (10, 20)
    )
    places = [
        [float(x) for x in group.get("transform", "")[7:-1].split()]
        for group in (ElementTree.fromstring(text)[0] for text in (narrow, wide))
    ]
    assert places[1][0] == pytest.approx(2 * places[0][0], rel=1e-4)
    assert [place[4] for place in places] == [40, 30]


def test_a_pdf_has_one_page_of_the_size_of_the_picture_and_no_fonts(document: str) -> None:
    content = pdf_bytes(outlined(document))
    assert content == pdf_bytes(outlined(document))
    assert content.startswith(b"%PDF-")
    assert b"/MediaBox [0 0 100.00 60.00]" in content
    assert b"/Count 1" in content
    assert b"/FontFile" not in content
    assert b"/BaseFont" not in content


def test_a_pdf_is_written_beside_its_svg_and_what_has_no_size_is_refused(
    document: str, tmp_path: Path
) -> None:
    file = tmp_path / "start.svg"
    write_svg(document, file)
    assert [path.name for path in tmp_path.iterdir()] == ["start.svg"]
    assert write_pdf(file) == tmp_path / "start.pdf"
    assert (tmp_path / "start.pdf").read_bytes() == pdf_bytes(file.read_text())
    for broken in ('<svg xmlns="http://www.w3.org/2000/svg"/>', "<svg", "no picture"):
        file.write_text(broken)
        with pytest.raises(StorageError, match=re.escape(str(file))):
            write_pdf(file)
    with pytest.raises(StorageError, match=r"missing\.svg"):
        write_pdf(tmp_path / "missing.svg")


def test_without_the_extra_texts_stay_texts_and_a_pdf_is_refused(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "fpdf"):
        monkeypatch.setitem(sys.modules, name, None)
    write_svg(document, tmp_path / "start.svg")
    assert (tmp_path / "start.svg").read_text() == document
    with pytest.raises(ConfigError, match=r"empo-pictures\[figures\]"):
        write_pdf(tmp_path / "start.svg")
