"""OpenAI's completions, chats and models."""

from __future__ import annotations

from jackfield.entrypoints.http.openai import chat, completions, models
from jackfield.entrypoints.http.schemas import openai, openai_chat
from jackfield.hookspecs import Route
from jackfield.hookspecs import RouteLevel as Level

OPENAI: tuple[Route, ...] = (
    Route(
        path="/v1/completions",
        methods=("POST",),
        level=Level.KEY,
        handler=completions.completions,
        summary="OpenAI's completions: n choices a prompt.",
        request=openai.CompletionBody,
        examples=({"prompt": "The capital of France is", "max_tokens": 8},),
        response=openai.Completion,
        stream=openai.Completion,
        generates=True,
    ),
    Route(
        path="/v1/chat/completions",
        methods=("POST",),
        level=Level.KEY,
        handler=chat.chat_completions,
        summary="OpenAI's chat completions, through the model's chat template.",
        request=openai_chat.ChatBody,
        examples=({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8},),
        response=openai_chat.ChatCompletion,
        stream=openai_chat.ChatChunk,
        ceilings={"messages": "max_messages", "tools": "max_tools"},
        generates=True,
    ),
    Route(
        path="/v1/models",
        methods=("GET",),
        level=Level.KEY,
        handler=models.models,
        summary="The served model, as OpenAI lists it.",
        response=openai.ModelList,
    ),
    Route(
        path="/v1/models/{model:path}",
        methods=("GET",),
        level=Level.KEY,
        handler=models.model,
        summary="One model, or 404.",
        response=openai.Model,
    ),
)
