"""Settings of Sphinx for the site; ``docs/build_site.py`` puts its pages together."""

project = "EMPO"
author = "The EMPO developers"
copyright = author
extensions = ["myst_parser"]
root_doc = "README"
smartquotes = False  # Quotes in messages stay those that are printed.
suppress_warnings = ["misc.highlighting_failure"]  # Excerpts with "..." are not whole programs.
myst_heading_anchors = 4
html_theme = "furo"
html_title = "EMPO"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # Pages opened from disk may not fetch others.
