"""Bodies of /v1/messages for the reference and the tests."""

from __future__ import annotations

from typing import Any

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

EXAMPLES: tuple[dict[str, Any], ...] = (
    {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]},
    {
        "model": "m",
        "max_tokens": 64,
        "system": [{"type": "text", "text": "Be brief."}],
        "stream": True,
        "tools": [WEATHER],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 32},
        "stop_sequences": ["END"],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "How is it in Paris?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I should look.", "signature": ""},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]}
                ],
            },
        ],
    },
)
