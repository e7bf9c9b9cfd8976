"""Make the reference implementation and the helper modules of this folder importable."""

import sys
from pathlib import Path

# Tests are not on the import path (--import-mode=importlib).
sys.path.insert(0, str(Path(__file__).parent))
