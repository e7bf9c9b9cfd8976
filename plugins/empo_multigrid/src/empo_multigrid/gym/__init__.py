"""Gymnasium and PettingZoo environments of one world, and a window; they need the extra ``gym``."""

from importlib.util import find_spec

for _name in ("gymnasium", "pettingzoo"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            f"environments of multigrid worlds need {_name}: pip install 'empo-multigrid[gym]'",
            name=_name,
        )
