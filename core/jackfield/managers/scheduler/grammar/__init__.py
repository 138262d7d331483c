"""Grammars in the scheduler: the gate at which a request waits for its own, and the masks of its tokens."""
