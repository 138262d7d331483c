"""Compiling grammars: a process of their own, what is kept of them. Knows no scheduler."""
