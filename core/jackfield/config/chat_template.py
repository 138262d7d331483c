"""Reads the file of `--chat-template`: Jinja source, or JSON with the key `chat_template`. Knows no Jinja."""

from __future__ import annotations

import json
from pathlib import Path

from jackfield.config.errors import ConfigurationError


def read_chat_template(path: Path) -> str:
    """Raises ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--chat-template {path}: cannot be read: {error}") from error
    if path.suffix != ".json":
        return text
    try:
        template = json.loads(text)["chat_template"]
    except (ValueError, TypeError, LookupError):
        template = None
    if not isinstance(template, str):
        raise ConfigurationError(
            f"--chat-template {path}: a JSON file must be an object whose key chat_template holds Jinja source"
        )
    return template
