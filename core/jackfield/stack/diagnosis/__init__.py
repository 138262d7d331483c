"""What is wrong with installed plugins, seen from a child process or from their text."""
