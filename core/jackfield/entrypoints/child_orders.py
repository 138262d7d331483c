"""What a process and its parent tell each other over the descriptor that the child inherits. Closed msgspec types.

The order of a start: `Orders`, then from the child `Found` (before anything is loaded, so that other code stops the start at
once), any number of `Progress`, and `Ready` or `Failed`. Later `Stop`, or the end of the descriptor: the parent has died.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

from jackfield.config.server_args import SECRETS, ServerArgs
from jackfield.entrypoints.plan import ReplicaPlan
from jackfield.hookspecs import WorkerLimits
from jackfield.ipc.messages import Message
from jackfield.stack.resolved import ModelFacts, ResolvedStack

Role = Literal["scheduler", "detokenizer"]


class Orders(Message, frozen=True, kw_only=True):
    """All that a child needs; it discovers and resolves nothing itself.

    args        `ServerArgs` as resolved, JSON values; keys of the HTTP routes are not among them
    sys_path    where the parent imports from
    logs        whether the parent's program has set up logging; if not, it shows warnings alone, and so does the child
    """

    role: Role
    sys_path: list[str]
    logs: bool
    args: dict[str, Any]
    model_path: str
    facts: ModelFacts
    stack: ResolvedStack

    @classmethod
    def make(cls, role: Role, plan: ReplicaPlan, *, sys_path: list[str]) -> Orders:
        return cls(
            role=role,
            sys_path=sys_path,
            logs=logging.getLogger("jackfield").hasHandlers(),
            args=plan.args.model_dump(mode="json", exclude=set(SECRETS)),
            model_path=str(plan.model_path.absolute()),
            facts=plan.facts,
            stack=plan.stack,
        )

    def plan(self) -> ReplicaPlan:
        return ReplicaPlan(
            args=ServerArgs.model_validate(self.args),
            model_path=Path(self.model_path),
            facts=self.facts,
            stack=self.stack,
        )


class Stop(Message, frozen=True, kw_only=True):
    """End in order."""


class Found(Message, frozen=True, kw_only=True):
    """The stack's hash from the files that this process would import; contents: package -> its digest."""

    stack_hash: str
    contents: dict[str, str]


class Progress(Message, frozen=True, kw_only=True):
    """Of a part of the start that takes long: `done` of `total` units of `what`."""

    what: str
    done: int
    total: int


class Ready(Message, frozen=True, kw_only=True):
    """limits: of the worker; None from the detokenizer."""

    limits: WorkerLimits | None = None


class Failed(Message, frozen=True, kw_only=True):
    """refused: the configuration cannot be had, and `message` is all that there is to say; else a crash."""

    refused: bool
    message: str
    traceback: str = ""


ToChild = Orders | Stop
FromChild = Found | Progress | Ready | Failed
