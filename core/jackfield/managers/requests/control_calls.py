"""Round trips of control requests to the scheduler: each is sent with a number, and its answer is taken by that number."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from typing import Any

from jackfield.ipc.channels import Sender
from jackfield.ipc.messages import (
    ControlReply,
    FlushCacheRequest,
    StateRequest,
    SwapPolicyRequest,
    WarmUpRequest,
    WhyRequest,
)

log = logging.getLogger(__name__)


class ControlCalls:
    """Every method that sends returns the number for `reply`. Called under the tokenizer manager's lock."""

    def __init__(self, to_scheduler: Sender) -> None:
        self._to_scheduler = to_scheduler
        self._numbers = itertools.count(1)
        self._replies: dict[int, ControlReply | None] = {}

    def flush_cache(self, timeout: float = 0.0) -> int:
        """timeout: seconds for which it may wait for an idle scheduler."""
        return self._send(FlushCacheRequest(control_id=next(self._numbers), timeout=timeout))

    def request_state(self) -> int:
        """The answer's data is the scheduler's `SchedulerState`."""
        return self._send(StateRequest(control_id=next(self._numbers)))

    def why(self, name: str) -> int:
        """Ask for the lives of the requests that are known under this id."""
        return self._send(WhyRequest(control_id=next(self._numbers), name=name))

    def swap_policy(self, name: str, options: Mapping[str, Any]) -> int:
        """Put this schedule policy, with all of its options, in the place of the one that runs."""
        return self._send(SwapPolicyRequest(control_id=next(self._numbers), name=name, options=dict(options)))

    def warm_up(self, *, begin: bool) -> int:
        return self._send(WarmUpRequest(control_id=next(self._numbers), begin=begin))

    def has_reply(self, control_id: int) -> bool:
        return self._replies.get(control_id) is not None

    def reply(self, control_id: int) -> ControlReply | None:
        """The answer to a control request, once; None while it is not there."""
        if self._replies[control_id] is None:
            return None
        return self._replies.pop(control_id)

    def forget(self, control_id: int) -> None:
        """Nobody waits for the answer any more."""
        self._replies.pop(control_id, None)

    def take(self, reply: ControlReply) -> None:
        """An answer came."""
        if reply.control_id not in self._replies:
            log.warning("an answer to a control request that nobody waits for: %s", reply.control_id)
            return
        self._replies[reply.control_id] = reply

    def _send(self, request: FlushCacheRequest | StateRequest | WhyRequest | SwapPolicyRequest | WarmUpRequest) -> int:
        self._replies[request.control_id] = None
        self._to_scheduler.send(request)
        return request.control_id
