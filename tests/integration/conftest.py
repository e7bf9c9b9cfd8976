"""Makes reference implementations in the tests of plugins importable here."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "plugins" / "empo_phase2" / "tests"))
