"""Multi-agent gridworlds with exact, batched transition probabilities."""

import sys

if "gymnasium" in sys.modules:
    import empo_multigrid.registration  # noqa: F401
