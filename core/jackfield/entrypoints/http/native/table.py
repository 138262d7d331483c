"""The routes of SGLang's shape, and those by which an operator sees and steers the server."""

from __future__ import annotations

from typing import Any

from jackfield.entrypoints.http.native import generate, info, parsing, policy, sessions, tokenize
from jackfield.entrypoints.http.schemas import native
from jackfield.entrypoints.http.schemas import parsing as parsed
from jackfield.entrypoints.http.schemas import tokenize as tokens
from jackfield.hookspecs import Handler, Route
from jackfield.hookspecs import RouteLevel as Level


def _get(path: str, level: Level, handler: Handler, summary: str, **more: Any) -> Route:
    return Route(path=path, methods=("GET",), level=level, handler=handler, summary=summary, **more)


NATIVE: tuple[Route, ...] = (
    Route(
        path="/generate",
        methods=("POST", "PUT"),
        level=Level.KEY,
        handler=generate.generate,
        summary="Complete one prompt or a batch, in SGLang's shape.",
        request=native.GenerateBody,
        examples=(
            {"text": "The capital of France is", "sampling_params": {"max_new_tokens": 8, "temperature": 0}},
            {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4}, "stream": True},
        ),
        response=native.GenerateAnswers,
        stream=native.GenerateAnswer,
        generates=True,
    ),
    _get(
        "/health",
        Level.OPEN,
        info.health,
        "200 if the server works; 503 while it starts or drains, when it has failed, and when it does not get on.",
        answer='`{"status": "healthy"}` with last_step_age_s, and the plugins that are quarantined, degraded or take longer than '
        "they should (overruns)",
    ),
    _get(
        "/ready",
        Level.OPEN,
        info.ready,
        "200 if a request would be taken now, else 503.",
        answer='`{"status": "ready"}`',
    ),
    _get(
        "/ping",
        Level.OPEN,
        info.ping,
        "200 as long as the process answers, in every state.",
        answer='`{"status": "alive"}`',
    ),
    _get(
        "/model_info",
        Level.KEY,
        info.model_info,
        "The model and its limits.",
        answer="model_path, served_model_name, is_generation, task, embedding_size, labels, has_tokenizer, "
        "has_chat_template, tool_call_parser and reasoning_parser (null: none) with tool_call_parser_reason "
        "and reasoning_parser_reason, context_length, vocab_size, max_total_tokens, page_size",
    ),
    _get(
        "/server_info",
        Level.KEY,
        info.info,
        "Arguments, the stack with its hash and reasons, the scheduler's and the KV pool's numbers, processes.",
        answer="version, args (keys are never shown), stack, scheduler, kv, sessions, faults, failure, processes",
    ),
    _get(
        "/get_model_info",
        Level.KEY,
        info.model_info,
        "As /model_info: the name by which older clients of SGLang know it.",
        answer="as /model_info",
    ),
    _get(
        "/get_server_info",
        Level.KEY,
        info.info,
        "As /server_info: the name by which older clients of SGLang know it.",
        answer="as /server_info",
    ),
    _get(
        "/plugins",
        Level.KEY,
        info.plugins,
        "The active stack, and for each plugin in each process its calls, their time and share, and its faults.",
        answer="version, stack, busy_s, plugins (in the stack's order: processes -> role -> methods, faults, quarantined), and "
        "summed over the processes hooks (plugin -> method or hook -> calls, seconds, exceptions, overruns) and faults",
    ),
    _get(
        "/metrics",
        Level.KEY,
        info.metrics,
        "Metrics for Prometheus; 404 without a sink that shows any.",
        media_type="text/plain",
        answer="the text format that `Accept` asks for",
    ),
    _get(
        "/requests/{rid:path}/why",
        Level.ADMIN,
        info.why,
        "A request's life: what it waited for, when it ran, how it ended. 404 if it is not known (any more).",
        answer="requests (who, state, events), ring and ended_kept (how far back the record goes), story (the same in words)",
    ),
    Route(
        path="/flush_cache",
        methods=("GET", "POST"),
        level=Level.ADMIN,
        handler=info.flush_cache,
        summary="Forget all cached prefixes. 400 while any request is open.",
        query={"timeout": "seconds to wait for the server to be idle (default 0, at most 600)"},
        response=native.FlushAnswer,
    ),
    Route(
        path="/schedule_policy",
        methods=("GET", "POST"),
        level=Level.ADMIN,
        handler=policy.schedule_policy,
        summary="GET: the schedule policy that runs. POST: put another in its place, between two steps; 400 and nothing changes "
        "if it cannot be had. The body is that of POST.",
        request=native.PolicyBody,
        examples=({"name": "fcfs"},),
        response=native.PolicyAnswer,
    ),
    Route(
        path="/parse_function_call",
        methods=("POST",),
        level=Level.KEY,
        handler=parsing.parse_function_call,
        summary="The tool calls in a text that a model wrote, by the parser of this run. 400 without one.",
        request=parsed.ParseFunctionCallBody,
        response=parsed.ParseFunctionCallAnswer,
        ceilings={"tools": "max_tools"},
        generates=True,
        examples=(
            {
                "text": '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
        ),
    ),
    Route(
        path="/separate_reasoning",
        methods=("POST",),
        level=Level.KEY,
        handler=parsing.separate_reasoning,
        summary="The reasoning and the answer in a text that a model wrote, by the parser of this run. 400 without one.",
        request=parsed.SeparateReasoningBody,
        response=parsed.SeparateReasoningAnswer,
        generates=True,
        examples=({"text": "<think>Hm.</think>Yes."},),
    ),
    Route(
        path="/open_session",
        methods=("POST",),
        level=Level.KEY,
        handler=sessions.open_session,
        summary="Open a session, which /generate continues with `session_params`. 503 if there are too many.",
        request=native.OpenSessionBody,
        examples=({},),
        answer="the session's id, a JSON string; whoever knows it may continue and close the session",
    ),
    Route(
        path="/close_session",
        methods=("POST",),
        level=Level.KEY,
        handler=sessions.close_session,
        summary="Forget a session; while a turn runs, at its end. 400 for an unknown id.",
        request=native.CloseSessionBody,
        examples=({"session_id": "a"},),
        response=native.CloseSessionAnswer,
    ),
    *(
        Route(
            path=f"{prefix}/tokenize",
            methods=("POST",),
            level=Level.KEY,
            handler=tokenize.tokenize,
            summary="The token ids of a prompt, of several, or of a conversation.",
            request=tokens.TokenizeBody,
            examples=({"prompt": "Hello"},),
            response=tokens.TokenizeAnswer,
            ceilings={"messages": "max_messages"},
            generates=True,
        )
        for prefix in ("", "/v1")
    ),
    *(
        Route(
            path=f"{prefix}/detokenize",
            methods=("POST",),
            level=Level.KEY,
            handler=tokenize.detokenize,
            summary="The text of token ids, or of several lists of them.",
            request=tokens.DetokenizeBody,
            examples=({"tokens": [1, 2, 3]},),
            response=tokens.DetokenizeAnswer,
            generates=True,
        )
        for prefix in ("", "/v1")
    ),
    Route(
        path="/abort_request",
        methods=("POST",),
        level=Level.ADMIN,
        handler=info.abort_request,
        summary="End one request by its id, or all. Their clients get what there is, with finish reason abort.",
        request=native.AbortBody,
        examples=({"abort_all": True},),
        response=native.AbortAnswer,
    ),
)
