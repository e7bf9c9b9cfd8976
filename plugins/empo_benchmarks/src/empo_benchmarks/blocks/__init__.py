"""World model ``blocks``: a robot without a body moves boxes that block a human."""
