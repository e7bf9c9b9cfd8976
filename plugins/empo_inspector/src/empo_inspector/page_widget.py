"""The page of a run as a widget of notebooks; needs the extra ``notebook``."""

from __future__ import annotations

from importlib import resources

import anywidget
import traitlets


class PageWidget(anywidget.AnyWidget):
    """A page whose selection Python reads and changes.

    Attributes:
        page: The page.
        height: Its height in pixels.
        selection: The address of what is shown: ``s`` state, ``t`` time, ``h`` human, ``g`` goal,
            ``a`` and ``b`` actions, ``v`` view. It is empty until the page is ready.
    """

    _esm = resources.files("empo_inspector").joinpath("page_widget.js").read_text("utf-8")
    page = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int().tag(sync=True)
    selection = traitlets.Dict().tag(sync=True)
