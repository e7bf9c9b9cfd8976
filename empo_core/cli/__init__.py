"""The ``empo`` command, from its first moment: Ctrl-C during imports is a message, too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; nothing is imported before Ctrl-C is taken care of."""
    try:
        from empo_core.cli.app import app
        from empo_core.printable import encode_plainly

        encode_plainly(sys.stdout, sys.stderr)
        app()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
