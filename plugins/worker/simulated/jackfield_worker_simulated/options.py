"""Options of the simulated worker."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Microseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Verify = Literal["new", "all", "off"]


class SimulatedOptions(BaseModel):
    """Options of `simulated`. The README has the formula that the five costs enter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_us: Microseconds = Field(default=5000.0, description="Microseconds of every step.")
    prefill_us_per_token: Microseconds = Field(default=40.0, description="Microseconds for each prefill token.")
    prefill_us_per_million_pairs: Microseconds = Field(
        default=1300.0, description="Microseconds for each million (query, key) pairs of prefill rows."
    )
    decode_us_per_row: Microseconds = Field(default=10.0, description="Microseconds for each decode row.")
    kv_us_per_context_token: Microseconds = Field(
        default=0.04, description="Microseconds for each context token that a row reads."
    )
    copy_us_per_token: Microseconds = Field(
        default=1.0, description="Microseconds for each token of a copy to or from a KV tier."
    )
    realtime: bool = Field(default=False, description="Let the steps' time pass on the wall clock.")
    script: str | list[str | list[int]] | None = Field(
        default=None,
        description="What the requests answer: one text for all, or a list of texts and id lists, one a request in the "
        "order of their numbers, again from the first after the last. Then comes the end token.",
    )
    window: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Simulate a model some of whose layers look back over so many tokens only, themselves included, and keep "
        "their KV in a smaller pool. Without effect where the cache cannot do with one, or KV tiers are named.",
    )
    window_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Slots of that pool; by default as many as the whole pool has."
    )
    verify: Verify = Field(
        default="new",
        description="new: check what is written and each prefix at first use; all: check every row's whole context in "
        "every step; off: do not look at slots.",
    )
