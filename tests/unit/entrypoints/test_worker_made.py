"""What a worker is told of the run, as far as flags of the start say it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.worker_side import make_worker
from jackfield.observability.clock import ManualClock
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter


class Loaded:
    """A stack with a worker that needs no plugins of other kinds; its attention counts two calls while the worker is made."""

    def __init__(self, meter: Meter) -> None:
        self.fields: dict[str, Any] = {}
        self._plan = meter.wrap("attention.mine", "plan", lambda: None)

    def plugin(self, kind: str) -> Any:
        manifest = SimpleNamespace(needs=(), features=frozenset())
        return SimpleNamespace(selected=SimpleNamespace(key=f"{kind}.mine", manifest=manifest))

    def of(self, kind: str) -> list[Any]:
        return [self.plugin(kind)] if kind == "attention" else []

    def make(self, kind: str, **fields: Any) -> Any:
        self.fields = fields
        self._plan()
        self._plan()
        return SimpleNamespace(sample=lambda: None)


@pytest.mark.parametrize("skips", [False, True])
def test_it_warms_up_unless_it_is_told_not_to_and_leaves_no_trace_in_the_numbers(skips: bool) -> None:
    meter = Meter()
    loaded = Loaded(meter)
    plan = SimpleNamespace(
        args=ServerArgs(skip_server_warmup=skips),
        facts=SimpleNamespace(config=SimpleNamespace(context_length=64, vocab_size=9, eos_token_ids=()), pooling=None),
        seed=0,
        stack=SimpleNamespace(worker_thread=False),
    )
    texts = SimpleNamespace(encode=None, source=None)
    make_worker(cast(Any, plan), cast(Any, loaded), cast(Any, texts), ManualClock(), FaultLedger(), meter)
    assert loaded.fields["warm_up"] is not skips
    assert "attention.mine" not in meter.costs()
