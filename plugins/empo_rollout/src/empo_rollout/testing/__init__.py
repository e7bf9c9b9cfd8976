"""Conformance kit for vectors of environments; needs the extra ``empo-rollout[testing]``.

Subclass ``empo_rollout.testing.vectors.VectorTests`` in the tests of your vector and override the
fixture that makes it.
"""

import pytest

# Without this a failing kit would show "AssertionError" and not the two sides.
pytest.register_assert_rewrite(f"{__name__}.vectors")
