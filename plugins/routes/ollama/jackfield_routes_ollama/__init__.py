"""Ollama's API on a Jackfield server."""
