"""A caller that goes away while its request is prepared."""

from __future__ import annotations

import asyncio
import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.service import Service
from jackfield.managers.errors import RequestError


@pytest.mark.parametrize("refused", [True, False])
def test_a_refusal_that_nobody_waits_for_is_no_error_of_the_server(refused: bool) -> None:
    service = Service(ServerArgs())
    entered, leave, orphaned = threading.Event(), threading.Event(), threading.Event()

    def submit(request: Any) -> Any:
        entered.set()
        assert leave.wait(60)
        if refused:
            raise RequestError("no")
        return SimpleNamespace(orphan=orphaned.set)

    service._serving = SimpleNamespace(mover=SimpleNamespace(submit=submit))  # type: ignore[assignment]
    complaints: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        waiting = asyncio.ensure_future(service.submit(lambda: None))  # type: ignore[arg-type, return-value]
        await asyncio.to_thread(entered.wait, 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        del waiting
        leave.set()
        await service.in_thread(lambda: None)
        service._pool.shutdown()
        await asyncio.to_thread(lambda: None)  # whatever the thread told the loop has come
        gc.collect()

    asyncio.run(main())
    gc.collect()
    service.close()
    assert complaints == []
    assert orphaned.is_set() is not refused
