"""Texts of pictures: other scripts, symbols, and characters that no font has."""

import logging

import pytest
from PIL import features

from empo_pictures import fonts
from empo_pictures.fonts import check_characters, fallbacks, runs

pytest.importorskip("matplotlib")

NOWHERE = "\U0003fffd"
"""A character that nobody has assigned."""


def parts(text: str) -> list[tuple[str, str]]:
    return [(run.text, run.font.getname()[0] or "") for run in runs(text, 20)[0]]


@pytest.mark.parametrize("word", ["Лабиринт", "αρχή", "Köln", "Łódź"])
def test_a_word_with_characters_that_the_usual_font_lacks_has_one_other_font(word: str) -> None:
    assert parts(f"a {word} b") == [("a ", "Aileron"), (word, "DejaVu Sans"), (" b", "Aileron")]
    assert [fallback.family for fallback in fallbacks(word)] == ["DejaVu Sans"]


@pytest.mark.skipif(not features.check("raqm"), reason="Pillow cannot lay out Arabic here")
def test_words_from_right_to_left_are_laid_out_together() -> None:
    assert parts("مرحبا بك (pursued)") == [
        ("مرحبا بك", "DejaVu Sans"),
        (" (pursued)", "Aileron"),
    ]
    joined, apart = runs("مرحبا", 100)[1], sum(runs(letter, 100)[1] for letter in "مرحبا")
    assert joined < 0.9 * apart


def test_from_right_to_left_nothing_is_drawn_without_a_layout_engine_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(features, "check", lambda name: name != "raqm")
    monkeypatch.setattr(fonts, "_fallback", fonts._fallback.__wrapped__)
    assert not fallbacks("שלום")
    assert fallbacks("мир")


def test_a_symbol_has_its_letters_one_above_the_other() -> None:
    line, width = runs("$V_h^e$ of $X_h$", 20)
    letter, below, above, rest, *_ = line
    assert [run.text for run in line] == ["V", "h", "e", " of ", "X", "h"]
    assert below.x == above.x > letter.x
    assert below.y > 0 > above.y
    assert below.font.size < letter.font.size
    assert rest.x > below.x
    assert width > rest.x


@pytest.mark.parametrize("text", ["5 $ or 6 $", "$word$", "$a_bc$", "a_b", "$$"])
def test_other_dollars_are_dollars(text: str) -> None:
    assert parts(text) == [(text, "Aileron")]


def test_one_warning_names_all_characters_that_no_font_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fonts._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            check_characters(["везде", f"a {NOWHERE}", f"{NOWHERE}{chr(ord(NOWHERE) - 1)}"])
    (record,) = caplog.records
    assert record.getMessage().count(NOWHERE) == 1
    assert chr(ord(NOWHERE) - 1) in record.getMessage()


def test_blanks_need_no_font(caplog: pytest.LogCaptureFixture) -> None:
    check_characters(["a\u00a0b\u200bc\td\u2009"])
    assert not caplog.records
