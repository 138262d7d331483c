"""Text to token ids and back, one token at a time, and where an answer stops."""
