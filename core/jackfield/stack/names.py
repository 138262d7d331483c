"""Names of plugins and distributions, and their one normal form. Knows nothing of where they come from."""

from __future__ import annotations

import re

_SEPARATORS = re.compile(r"[-_.]+")
_PLUGIN_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def normalise_name(name: str) -> str:
    """The form of PEP 503, so that `flash_attn`, `Flash.Attn` and `flash-attn` are one name."""
    return _SEPARATORS.sub("-", name).lower()


def is_plugin_name(name: str) -> bool:
    """Whether a normalised name may name a plugin."""
    return _PLUGIN_NAME.fullmatch(name) is not None


def instance_key(kind: str, instance: str) -> str:
    """How one use of a plugin is written everywhere: `[options."<kind>.<instance>"]`, logs, metrics, fault counts."""
    return f"{kind}.{instance}"
