"""Makes the random games of the exact solver's tests, and what is here, importable."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parents[1] / "empo_exact" / "tests")]
