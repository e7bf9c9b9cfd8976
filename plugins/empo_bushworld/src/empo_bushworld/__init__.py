"""BushWorld: robots tread paths through bushes that slow humans down."""
