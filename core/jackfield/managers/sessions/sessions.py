"""Sessions: contexts that clients continue turn by turn without sending them again. Lives in the main process; what the
scheduler sees are ordinary requests, whose long prompts its prefix cache has.

A turn enters the tree when it begins and stays if it ends with an answer; one that is aborted or fails leaves no trace. Any
thread may call; each call takes the lock for a moment.
"""

from __future__ import annotations

import math
import numbers
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jackfield.managers.errors import RequestError, shown
from jackfield.managers.fields.session import SessionParams, session_params
from jackfield.managers.sessions.tree import Node, SessionTree
from jackfield.managers.text.tokenizer import check_unicode
from jackfield.observability.clock import Clock

MAX_SECONDS = 2**31


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """sessions: at once. tokens: of one session's turns together. timeout: seconds without a turn until one is forgotten.
    turns: of one session. id_length: characters of a client's own id."""

    sessions: int = 1024
    tokens: int = 131072
    timeout: float = 3600.0
    turns: int = 4096
    id_length: int = 128


@dataclass(kw_only=True)
class _Session:
    id: str
    tokens: int
    timeout: float
    used_at: float
    closing: bool = False
    tree: SessionTree = field(default_factory=SessionTree)

    @property
    def expires_at(self) -> float:
        """Never while a turn runs."""
        return math.inf if self.tree.open_turns else self.used_at + self.timeout


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """A turn that may begin. context: ids that go before those of the request."""

    params: SessionParams
    session: _Session
    parent: Node | None
    context: Sequence[int]


@dataclass(kw_only=True)
class Turn:
    """A turn that has begun. removed: what it replaces, should it succeed."""

    session: _Session
    node: Node
    removed: list[Node]
    ended: bool = False


class Sessions:
    def __init__(self, clock: Clock, limits: SessionLimits | None = None) -> None:
        self.limits = limits or SessionLimits()
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._next_expiry = math.inf

    def __len__(self) -> int:
        """Open sessions, those included that are to be closed when their turn ends."""
        with self._lock:
            self._reap()
            return len(self._sessions)

    def numbers(self) -> dict[str, int]:
        """How many are open, and the tokens of their turns, with what running ones may still add."""
        with self._lock:
            self._reap()
            tokens = sum(session.tree.tokens for session in self._sessions.values())
            return {"open": len(self._sessions), "tokens": tokens}

    def open(
        self,
        *,
        session_id: str | None = None,
        max_tokens: int | None = None,
        capacity_of_str_len: int | None = None,
        timeout: float | None = None,
    ) -> str:
        """A new session's id. max_tokens: at most so many in its turns together; capacity_of_str_len is SGLang's name for a
        bound in characters, and a token has at least one: the smaller bound counts. timeout: seconds without a turn until it
        is forgotten. Both may lower the run's limits, not raise them.

        Raises RequestError, with 503 if there are too many sessions.
        """
        most = self.limits.tokens
        for name, value in (("max_tokens", max_tokens), ("capacity_of_str_len", capacity_of_str_len)):
            if value is not None:
                most = min(most, _positive(name, value))
        seconds = self.limits.timeout if timeout is None else min(self.limits.timeout, _seconds(timeout))
        made = uuid.uuid4().hex if session_id is None else _checked_id(session_id, self.limits.id_length)
        with self._lock:
            self._reap()
            if made in self._sessions:
                raise RequestError("a session of this session_id is open", param="session_id")
            if len(self._sessions) >= self.limits.sessions:
                raise RequestError(
                    f"{len(self._sessions)} sessions are open, and no more are taken (--max-sessions)", status_code=503
                )
            session = _Session(id=made, tokens=most, timeout=seconds, used_at=self._clock.now())
            self._sessions[made] = session
            self._next_expiry = min(self._next_expiry, session.expires_at)
        return made

    def close(self, session_id: str) -> bool:
        """Forget it. False: a turn is running, and at its end the session goes. Raises RequestError for an unknown id."""
        with self._lock:
            self._reap()
            session = self._find(session_id, "session_id")
            session.closing = True
            return self._forget_if_closed(session)

    def resume(self, given: Any) -> Resumption:
        """What a turn goes on from. Changes nothing. Raises RequestError naming the field."""
        params = session_params(given)
        with self._lock:
            self._reap()
            session = self._find(params.id, "session_params.id")
            parent = self._parent(session, params)
            context = [] if parent is None else parent.context(_kept(parent, params))
        return Resumption(params=params, session=session, parent=parent, context=context)

    def begin(self, resumption: Resumption, label: str, prompt: Sequence[int], most: int) -> Turn:
        """Enter the turn. label: its rid; prompt: the ids that it adds; most: tokens of its answer.

        Raises RequestError if the session has no room, or has changed since `resume`.
        """
        params, session, parent = resumption.params, resumption.session, resumption.parent
        with self._lock:
            self._reap()
            if self._find(params.id, "session_params.id") is not session or (
                self._parent(session, params) is not parent
            ):
                raise RequestError("the session has changed while the turn was prepared", param="session_params")
            tree = session.tree
            removed = tree.followers(parent) if params.replace else []
            if label in tree.detached or (label in tree.nodes and tree.nodes[label] not in removed):
                raise RequestError(f"the session has a turn of the rid {shown(label)}", param="rid")
            held = tree.tokens - sum(len(node.own) for node in removed)
            if held + len(prompt) + most > session.tokens:
                raise RequestError(
                    f"the session holds {held} tokens of at most {session.tokens}: a prompt of {len(prompt)} and an "
                    f"answer of up to {most} do not fit (--max-session-tokens). Ask for fewer, or open a new session.",
                    param="session_params",
                )
            if len(tree.nodes) - len(removed) >= self.limits.turns:
                raise RequestError(
                    f"the session has {len(tree.nodes) - len(removed)} turns, and takes no more (--max-session-turns). "
                    "Replace some, or open a new session.",
                    param="session_params",
                )
            tree.detach(removed)
            node = tree.begin(label, parent, len(resumption.context), np.array(prompt, dtype=np.int32), most)
        return Turn(session=session, node=node, removed=removed)

    def end(self, turn: Turn, answer: Sequence[int] | None) -> None:
        """answer: its ids; None: it was aborted or failed, and the session is as it was. A second call does nothing."""
        with self._lock:
            if turn.ended:
                return
            turn.ended = True
            session = turn.session
            if answer is None:
                session.tree.undo(turn.node)
                session.tree.attach(turn.removed)
            else:
                session.tree.complete(turn.node, np.array(answer, dtype=np.int32))
                session.tree.drop(turn.removed)
            session.used_at = self._clock.now()
            self._next_expiry = min(self._next_expiry, session.expires_at)
            self._forget_if_closed(session)

    def reap(self) -> None:
        """Forget the sessions whose time is over. Costs nothing while there are none."""
        if self._clock.now() >= self._next_expiry:
            with self._lock:
                self._reap()

    # under the lock

    def _find(self, session_id: Any, param: str) -> _Session:
        session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if session is None:
            raise RequestError(f"there is no session {shown(session_id)}; it may have expired", param=param)
        if session.closing:
            raise RequestError("the session is being closed", param=param)
        return session

    def _parent(self, session: _Session, params: SessionParams) -> Node | None:
        """The turn to go on from; None: the beginning."""
        tree = session.tree
        if params.rid is None:
            parent = None if params.replace else tree.latest
        else:
            parent = tree.nodes.get(params.rid)
            if parent is None:
                raise RequestError(
                    f"the session has no turn of the rid {shown(params.rid)}; it may have been replaced, or ended without "
                    "an answer",
                    param="session_params.rid",
                )
        still = [node for node in (parent,) if node is not None and node.open]
        if params.replace:
            still += [node for node in tree.followers(parent) if node.open]
        if still:
            raise RequestError(
                f"the turn {shown(still[0].label)} of this session is still running",
                param="session_params.rid" if params.rid is not None else "session_params",
            )
        if parent is None:
            if params.offset is not None:
                raise RequestError("the session is empty: there is nothing to cut", param="session_params.offset")
        elif params.offset is not None and params.offset > (length := _whole(parent, params)):
            raise RequestError(
                f"session_params.offset is {params.offset}, and the context has {length} tokens",
                param="session_params.offset",
            )
        return parent

    def _forget_if_closed(self, session: _Session) -> bool:
        if session.closing and not session.tree.open_turns:
            self._sessions.pop(session.id, None)
            return True
        return False

    def _reap(self) -> None:
        now = self._clock.now()
        if now < self._next_expiry:
            return
        for session in [one for one in self._sessions.values() if one.expires_at <= now]:
            del self._sessions[session.id]
        self._next_expiry = min((one.expires_at for one in self._sessions.values()), default=math.inf)


def _whole(parent: Node, params: SessionParams) -> int:
    return parent.prompt_length if params.drop_previous_output else parent.length


def _kept(parent: Node, params: SessionParams) -> int:
    return _whole(parent, params) if params.offset is None else params.offset


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
        raise RequestError(f"{name} must be a whole number from 1, not {shown(value)}", param=name)
    return int(value)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise RequestError(f"timeout must be a number of seconds above 0, not {shown(value)}", param="timeout")
    return float(min(value, MAX_SECONDS))


def _checked_id(value: Any, most: int) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise RequestError(
            f"session_id is a text of 1 to {most} characters (--max-request-id-length)", param="session_id"
        )
    check_unicode(value, "session_id")
    return value
