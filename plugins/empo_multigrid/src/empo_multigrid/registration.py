"""Makes ``gymnasium.make("empo_multigrid:Empo/Multigrid-v0", world=...)`` work.

Imported by every module that can make a world, and by the package where Gymnasium was imported
before it. Listing plugins imports the package alone, and must not wait for Gymnasium.
"""

from __future__ import annotations

import gymnasium

ID = "Empo/Multigrid-v0"

if ID not in gymnasium.registry:
    gymnasium.register(
        ID,
        entry_point="empo_multigrid.gym.environments:MultigridEnv",
        # The environment checks actions and order itself, and truncates at the horizon.
        order_enforce=False,
        disable_env_checker=False,
    )
