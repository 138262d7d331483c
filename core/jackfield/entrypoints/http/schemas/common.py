"""Pieces of the request models.

A field of type Any is checked by the runtime itself, which does so for every way in and names the field: prompts (which may
be long, and are not copied here), sampling parameters and contents of messages.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Strict

NotYet = Annotated[Any, Field(description="Not supported by this version: refused unless it asks for nothing.")]
"""A field that this version knows and does not implement; `managers.not_yet` has the values that pass."""

Unused = Annotated[Any, Field(description="Accepted and without effect here.")]
"""A field of SGLang's that means nothing on one node, and that SGLang itself ignores unless it is set up for it."""

Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict()]
Size = Annotated[int, Strict(), Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, Strict(), Field(ge=1, le=2**31 - 1)]


class Native(BaseModel):
    """Requests of the native routes: an unknown field is refused, with its name."""

    model_config = ConfigDict(extra="forbid")


class OpenAI(BaseModel):
    """Requests of the OpenAI routes: unknown fields are ignored, as clients send what other servers know. null is absent."""

    model_config = ConfigDict(extra="ignore")


class ErrorFacts(BaseModel):
    model_config = ConfigDict(extra="forbid")

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """Every answer that is no success."""

    model_config = ConfigDict(extra="forbid")

    error: ErrorFacts


class Answer(BaseModel):
    """Answers: all fields stand here."""

    model_config = ConfigDict(extra="forbid")
