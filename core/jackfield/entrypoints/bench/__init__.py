"""`jackfield bench`: measures a stack in this process, any OpenAI endpoint over HTTP, and compares what was measured.

One idea a file. Knows the Engine and HTTP as their users do, and nothing of what is behind them; the flags are the command line's
(`entrypoints/cli/bench*.py`).
"""
