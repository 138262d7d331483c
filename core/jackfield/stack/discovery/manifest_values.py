"""The checkers of a manifest's values: each answers (value or None, what was wanted). Knows no key."""

from __future__ import annotations

import re
from typing import Any

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def text(value: Any) -> tuple[Any, str]:
    return (value if isinstance(value, str) and value.strip() else None), "a text"


def texts(value: Any) -> tuple[Any, str]:
    good = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    return (tuple(value) if good else None), "a list of texts"


def text_sets(value: Any) -> tuple[Any, str]:
    wanted = "a list of texts, or of lists of texts"
    if not isinstance(value, list):
        return None, wanted
    sets = [texts([one] if isinstance(one, str) else one)[0] for one in value]
    return (tuple(sets) if all(sets) else None), wanted


def whole(value: Any) -> tuple[Any, str]:
    return (value if isinstance(value, int) and not isinstance(value, bool) else None), "a whole number"


def dotted(value: Any) -> tuple[Any, str]:
    good = isinstance(value, str) and _DOTTED.fullmatch(value)
    return (value if good else None), 'of the form "package.module:name"'


def version_range(value: Any) -> tuple[Any, str]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # few manifests name a range

    try:
        good = isinstance(value, str) and value.strip() and SpecifierSet(value)
    except InvalidSpecifier:
        good = None
    return (value if good else None), 'a range of versions as in dependencies, such as ">=0.1,<0.3"'


def kind_versions(value: Any) -> tuple[Any, str]:
    good = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    return (value if good else None), 'a table of kind = "major.minor"'
