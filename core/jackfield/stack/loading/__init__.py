"""From a selected plugin to its object: imports, checks of its hooks and options, deprecation."""
