"""The ``empo`` command, from its first moment: Ctrl-C during imports is a message, too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; nothing is imported before Ctrl-C is taken care of."""
    import gc

    # Imports make a million objects that stay; to look for garbage among them time and again took
    # half a second, and a second while kernels are compiled. What a long run leaves in cycles, as
    # libraries do for each tensor that is saved, may not wait long: 500,000 objects are 100 MiB.
    gc.set_threshold(20_000, 20)
    try:
        try:
            from empo_core.cli.output import UnreadOutputError, give_up, take_over

            take_over()
            from empo_core.cli.app import app
            from empo_core.errors import OutputError

            try:
                try:
                    app()
                finally:
                    give_up()
            except UnreadOutputError:  # Of what no command prints, e.g. its help.
                sys.exit(1)
            except OutputError as error:
                print(error, file=sys.stderr)
                sys.exit(3)
        finally:
            import signal

            # Another Ctrl-C cuts short what is still done at exit, without tracebacks of it.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # At exit Python would look for garbage among all objects; the memory goes back anyway.
            gc.freeze()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
