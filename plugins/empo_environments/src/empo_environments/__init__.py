"""Environments behind one contract: in this process, in workers, or stepped in one call."""
