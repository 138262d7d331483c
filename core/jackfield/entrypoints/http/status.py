"""Where the server is in its life, and what is wrong with it. Knows no routes and no signals."""

from __future__ import annotations

import enum
from collections.abc import Callable


class Phase(enum.Enum):
    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"
    FAILED = "failed"


class ServerStatus:
    """phase, and `checks` that are asked while it is UP: each returns what is wrong, or None. Used on the event loop only."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self.checks: list[Callable[[], str | None]] = []

    def up(self) -> None:
        if self.phase is Phase.STARTING:
            self.phase = Phase.UP

    def drain(self) -> None:
        if self.phase is not Phase.FAILED:
            self.phase = Phase.DRAINING

    def fail(self) -> None:
        self.phase = Phase.FAILED

    @property
    def accepts(self) -> bool:
        """Whether new generation requests are taken."""
        return self.phase is Phase.UP

    @property
    def problem(self) -> str | None:
        """Why the server is not healthy, in fixed words; None: it is."""
        match self.phase:
            case Phase.STARTING:
                return "the server is starting"
            case Phase.DRAINING:
                return "the server is shutting down"
            case Phase.FAILED:
                return "the model runtime has stopped"
        return next((problem for check in self.checks if (problem := check()) is not None), None)
