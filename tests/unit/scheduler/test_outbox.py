"""What the outbox sends at once, what it holds back, and that the order of a request's entries is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jackfield.ipc.channels import InMemoryChannel
from jackfield.ipc.messages import (
    BatchTokenOutput,
    FinishReason,
    SamplingParams,
    ToDetokenizer,
    TokenizedGenerateRequest,
    TokenLogprobs,
)
from jackfield.managers.scheduler.output import Outbox
from jackfield.managers.scheduler.request import Request


def request(rid: str, *, stream: bool = False, **sampling: Any) -> Request:
    message = TokenizedGenerateRequest(rid=rid, input_ids=[1, 2], sampling=SamplingParams(**sampling), stream=stream)
    prompt = np.array([1, 2], dtype=np.int32)
    return Request(message, uid=1, prompt=prompt, max_new_tokens=8, seed=0, namespace=b"", now=0.0)


class Box:
    def __init__(self, patience: int) -> None:
        self.channel = InMemoryChannel(ToDetokenizer)
        self.outbox = Outbox(self.channel, patience)

    def step(self, *grown: tuple[Request, int], logprobs: TokenLogprobs | None = None) -> list[tuple[str, list[int]]]:
        for one, token in grown:
            self.outbox.grew(one, [token], logprobs)
        return self.sent()

    def sent(self) -> list[tuple[str, list[int]]]:
        self.outbox.flush()
        messages = []
        while (message := self.channel.receive()) is not None:
            assert isinstance(message, BatchTokenOutput)
            messages += [(entry.rid, list(entry.ids)) for entry in message.outputs]
        return messages


def test_ids_on_which_nobody_waits_go_together() -> None:
    box, a, b = Box(3), request("a"), request("b")
    assert box.step((a, 1), (b, 11)) == []
    assert box.step((a, 2)) == []
    assert box.step((a, 3), (b, 12)) == [("a", [1, 2, 3]), ("b", [11, 12])]
    assert box.step((a, 4)) == []


@pytest.mark.parametrize("hurried", [{"stream": True}, {"stop": ("x",)}, {"stop_regex": ("x",)}])
def test_whoever_is_waited_for_takes_the_others_along(hurried: dict[str, Any]) -> None:
    box, a, b = Box(100), request("a"), request("b", **hurried)
    assert box.step((a, 1)) == []
    assert box.step((b, 11), (a, 2)) == [("a", [1, 2]), ("b", [11])]


def test_the_end_comes_behind_all_ids() -> None:
    box, a = Box(100), request("a")
    box.step((a, 1))
    box.outbox.finish(a, [2], FinishReason(type="length", length=2), 0, {}, 0)
    assert box.sent() == [("a", [1]), ("a", [2])]


def test_log_probabilities_and_no_patience_hold_nothing_back() -> None:
    a = request("a")
    assert Box(100).step((a, 1), logprobs=TokenLogprobs(chosen=b"0000")) == [("a", [1])]
    assert Box(0).step((a, 1)) == [("a", [1])]
