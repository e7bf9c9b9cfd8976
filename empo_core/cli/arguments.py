"""Arguments and options that several commands have, those of plugins included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from empo_core.config import HumanPriorRef

RunDirectory = Annotated[
    Path, typer.Argument(metavar="RUN_DIR", help="A run's directory.", show_default=False)
]
HumanPrior = Annotated[
    str | None,
    typer.Option(
        "--human-prior",
        metavar="PRIOR",
        help="Humans who act differently than the run assumed: a human_prior as in a config.",
        show_default=False,
    ),
]


def human_prior_of(text: str | None) -> HumanPriorRef | None:
    """The human prior that ``--human-prior`` gives; None where it was not given.

    Raises:
        ConfigError: if the text is no human prior.
    """
    from empo_core.config import HumanPriorRef
    from empo_core.config.files import parse_yaml, validate_document

    if text is None:
        return None
    return validate_document(HumanPriorRef, parse_yaml(text, name="--human-prior"))
