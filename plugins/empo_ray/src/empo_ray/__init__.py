"""Workers on the machines of a Ray cluster: the executor ``ray``."""
