"""Errors of the stack: a plugin that cannot be loaded, and a plugin's fault that ends the replica."""

from __future__ import annotations

from jackfield.config.errors import ConfigurationError

PLUGIN_ERRORS = (Exception, SystemExit)
"""What is a plugin's fault when it raises it. An interrupt is the user's."""


class PluginLoadError(ConfigurationError):
    """A selected plugin could not be imported, checked or made. Names the plugin, its distribution and the cause."""


class PluginStop(Exception):
    """A plugin's fault after which this replica cannot go on. `__cause__` is what the plugin raised."""
