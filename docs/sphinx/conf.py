"""Settings of Sphinx for the site; ``docs/build_site.py`` puts its pages together."""

from typing import NoReturn

from docutils.nodes import SkipNode, math, math_block
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

project = "EMPO"
author = "The EMPO developers"
copyright = author
extensions = ["myst_parser"]
root_doc = "README"
smartquotes = False  # Quotes in messages stay those that are printed.
suppress_warnings = ["misc.highlighting_failure"]  # Excerpts with "..." are not whole programs.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_labels = False
html_math_renderer = "mathml"  # Browsers typeset it without a script.
html_theme = "furo"
html_title = "EMPO"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # Pages opened from disk may not fetch others.


def inline_formula(translator: HTML5Translator, node: math) -> NoReturn:
    """Write a formula within a line as MathML."""
    translator.body.append(tex2mathml(node.astext()))
    raise SkipNode


def formula(translator: HTML5Translator, node: math_block) -> NoReturn:
    """Write a formula on lines of its own as MathML."""
    translator.body.append(tex2mathml(node.astext(), as_block=True))
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Register how formulas are written."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))
