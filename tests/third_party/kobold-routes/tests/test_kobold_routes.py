"""What a story-writing client gets."""

from __future__ import annotations

import asyncio

from kobold_routes.plugin import jackfield_routes

from jackfield.hookspecs import RoutesContext, TextRequest
from jackfield.testing.route_client import RouteClient
from jackfield.testing.scripted_runtime import ScriptedRuntime

ROUTES = jackfield_routes(RoutesContext(kind="routes", name="kobold", instance="kobold"))


def test_a_story_goes_on() -> None:
    async def check() -> None:
        runtime = ScriptedRuntime()
        async with RouteClient(ROUTES, runtime) as client:
            body = {"prompt": "Once", "max_length": 5, "rep_pen": 1.1, "stop_sequence": ["\n"], "n": 1}
            answer = await client.post("/api/v1/generate", body)
        assert answer.json() == {"results": [{"text": "Hello"}]}
        (asked,) = runtime.asked
        assert isinstance(asked, TextRequest)
        assert asked.sampling == {"max_new_tokens": 5, "repetition_penalty": 1.1, "stop": ["\n"]}

    asyncio.run(check())


def test_piece_by_piece() -> None:
    async def check() -> None:
        async with RouteClient(ROUTES, ScriptedRuntime()) as client:
            answer = await client.post("/api/extra/generate/stream", {"prompt": "Once"})
        assert answer.text.count("event: message\n") == 2
        assert '{"token": "Hel"}' in answer.text

    asyncio.run(check())
