"""Anthropic's Messages API on a Jackfield server."""
