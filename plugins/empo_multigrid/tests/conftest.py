"""Make the helper modules of this folder importable by its tests."""

import importlib.util
import sys
from pathlib import Path

# Tests are not on the import path (--import-mode=importlib). In this order: the second module
# imports the first.
for name in ("random_worlds", "drawn_worlds"):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
