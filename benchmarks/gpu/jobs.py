"""What a section is asked, and the rows that it answers with. Knows no section and no process."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

Row = dict[str, Any]
Tell = Callable[[Row], None]
"""Takes a row as soon as it is known."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a section is asked.

    section    name of a module of this package with `run(job, tell)`
    seconds    for which it may go on; a section stops between two rows when it is over
    arguments  the section's own
    """

    section: str
    device: str
    tiny: bool
    seconds: float
    arguments: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (time.monotonic() - self.began)

    def text(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if name != "began"})


def guarded(row: Row, work: Callable[[], Row]) -> Row:
    """The row with what `work` finds, or with its failure. The section goes on."""
    try:
        return row | work()
    except Exception:
        return row | {"failed": traceback.format_exc()}
