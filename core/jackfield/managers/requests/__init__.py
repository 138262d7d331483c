"""A request in the main process, from the call that brings it to its end."""
