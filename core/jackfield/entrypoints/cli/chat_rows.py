"""The rows of /stack, from what /server_info tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def stack_rows(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(kind, plugin and version), the stack's hash last. Raises KeyError or TypeError for what is no server info."""
    stack = info["stack"]
    rows = [
        (plugin["kind"], f"{plugin['instance']} ({plugin['distribution']} {plugin['version']})")
        for plugin in stack["plugins"]
    ]
    return [*rows, ("stack", stack["hash"][:12])]
