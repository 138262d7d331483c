"""Runs checks of a conformance suite without pytest's machinery: which fail, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from jackfield.testing.conformance import Conformance


def failing(suite: type[Conformance], checks: Iterable[str], **fixtures: Any) -> Mapping[str, str]:
    """Check -> what went wrong; a check that ends as "not claimed" or "not here" has not failed. fixtures: by parameter
    name, those that a check takes."""
    found = {}
    for name in checks:
        check = getattr(suite(), name)
        wanted = check.__code__.co_varnames[1 : check.__code__.co_argcount]
        try:
            check(**{word: fixtures[word] for word in wanted})
        except pytest.skip.Exception:
            continue
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found
