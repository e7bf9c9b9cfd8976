"""Experience from actor processes that may fail, for empo."""
