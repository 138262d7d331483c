"""What an operator may set, and what a request may ask."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[int, Field(ge=0)]


class AllowIdsOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")

    most_ids: int = Field(1000, ge=1, description="More ids than this are an error of the request.")


class AllowIdsParameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ids: list[Id] = Field(min_length=1, description="Tokens that the answer may hold.")
    most: int | None = Field(
        None, ge=1, description="How often each of them may come; not given: as often as it likes."
    )
    then: Id = Field(description="The token that follows when all are used up.")
