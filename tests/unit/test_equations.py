"""The core's equations check the shapes of what they are given, while tests run."""

import jaxtyping
import pytest
import torch

from empo_core import equations


def test_a_shape_that_would_broadcast_unnoticed_is_refused() -> None:
    q_r, available = torch.full((2, 3), -1.0), torch.ones(3, dtype=torch.bool)
    with pytest.raises(jaxtyping.TypeCheckError, match="available"):
        equations.robot_policy(q_r, 2.0, available)
    policy = equations.robot_policy(q_r, 2.0, available.expand(2, 3))
    torch.testing.assert_close(policy, torch.full((2, 3), 1 / 3))
