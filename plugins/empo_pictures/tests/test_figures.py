from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("matplotlib")

from empo_pictures.figures import COLOURS, LINE_STYLES, in_words, new_figure, write_figure

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
DEFICIENCIES = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip


def test_a_figure_is_written_as_png_svg_and_pdf_with_texts_that_need_no_font(
    tmp_path: Path,
) -> None:
    figure, (first, second) = new_figure(columns=2, width=8)
    first.plot([0, 1], [1, 2], label="one curve")
    first.legend()
    second.set_title("another panel, $V_h^e$")
    paths = write_figure(figure, tmp_path / "curve.png")
    assert [path.name for path in paths] == ["curve.png", "curve.svg", "curve.pdf"]
    with Image.open(paths[0]) as picture:
        assert picture.size == (8 * 240, 3.6 * 240)
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(paths[1]).iter()}
    assert "text" not in tags
    assert b"/FontFile2" in paths[2].read_bytes()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("exact/v_r", "$V_r$ (exact)"),
        ("root.V_r", "$V_r$ (start)"),
        ("eval/v_h_e_mean_abs", "$V_h^e$ mean abs (evaluation)"),
        ("beta_r", r"$\beta_r$"),
        ("zeta", r"$\zeta$"),
        ("eval/planner/return_mean", "return mean (evaluation planner)"),
        ("n_steps", "n steps"),
        ("etage", "etage"),
        ("in_$", r"in \$"),
    ],
)
def test_keys_become_titles_in_words(key: str, words: str) -> None:
    assert in_words(key) == words


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    written = []
    for name in ("first", "second"):
        figure, (axes,) = new_figure()
        axes.plot([0, 1], [1, 2])
        write_figure(figure, tmp_path / name / "curve.png")
        written.append([file.read_bytes() for file in sorted((tmp_path / name).iterdir())])
    assert written[0] == written[1]


def test_curves_differ_in_colour_and_in_style() -> None:
    _, (axes,) = new_figure()
    for height in range(len(COLOURS)):
        axes.plot([0, 1], [height, height])
    lines = axes.get_lines()
    assert len({line.get_color() for line in lines}) == len(COLOURS)
    assert len({str(style) for style in LINE_STYLES}) == len(COLOURS)


@pytest.mark.parametrize("matrix", DEFICIENCIES.values(), ids=DEFICIENCIES.keys())
def test_colours_of_curves_differ_with_any_colour_vision(matrix: list[list[float]]) -> None:
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS])
    perceived = np.clip(rgb**2.2 @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
    distances = np.abs(perceived[:, None] - perceived[None]).sum(-1) + np.eye(len(perceived)) * 9
    assert distances.min() > 0.2
