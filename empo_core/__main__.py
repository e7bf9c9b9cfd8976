"""``python -m empo_core`` is ``empo``."""

from empo_core.cli import main

main()
