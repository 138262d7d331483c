"""Bodies of /api/chat and /api/generate for the reference and the tests."""

from __future__ import annotations

from typing import Any

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

CHATS: tuple[dict[str, Any], ...] = (
    {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "options": {"num_predict": 8}},
    {
        "model": "m",
        "stream": False,
        "think": False,
        "tools": [WEATHER],
        "options": {"temperature": 0, "stop": ["END"], "top_k": 0},
        "messages": [
            {"role": "user", "content": "How is it in Paris?"},
            {
                "role": "assistant",
                "content": "",
                "thinking": "I should look.",
                "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Paris"}}}],
            },
            {"role": "tool", "tool_name": "weather", "content": "rain"},
        ],
    },
)

PROMPTS: tuple[dict[str, Any], ...] = (
    {"model": "m", "prompt": "Why is the sky blue?", "options": {"num_predict": 8}},
    {"model": "m", "prompt": "The capital of France is", "raw": True, "stream": False, "options": {"num_predict": 8}},
)
