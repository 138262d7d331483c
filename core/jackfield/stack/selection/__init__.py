"""Which of what is installed serves a run: trust, checks, the choice of each kind, and their resolution into a stack."""
