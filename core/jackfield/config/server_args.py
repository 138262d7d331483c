"""`ServerArgs`: the only configuration of a run, as one frozen record.

Knows its fields (`arg_fields`, `limit_fields`) and what contradicts what; not which plugins, devices or models exist (that is the
resolution's business), nor where the values came from (`sources.py`).
"""

from __future__ import annotations

from typing import Any

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from jackfield.config.arg_fields import ArgFields
from jackfield.config.arg_types import CHUNKING_OFF
from jackfield.config.limit_fields import LimitFields
from jackfield.config.names import AUTO, NONE, PluginUse
from jackfield.hookspecs.kinds import KINDS

SECRETS = ("api_key", "admin_api_key")
"""Fields that are shown nowhere: not in /server_info, `explain`, logs or error messages."""


class ServerArgs(LimitFields, ArgFields):
    """The configuration of one run. Made by `sources.py`, which reports problems as `ConfigurationError`."""

    def public_dump(self) -> dict[str, Any]:
        """JSON values of all fields, with "***" for a key that is set."""
        shown = self.model_dump(mode="json")
        shown.update({name: "***" for name in SECRETS if shown[name] is not None})
        return shown

    def plugin_for(self, kind: str, phase: str | None = None) -> str | None:
        """The plugin named for an exclusive kind, None if the choice is free or there shall be none. `phase` ("prefill",
        "decode"; "tool_calls", "reasoning") is for kinds with parts: a part's own plugin goes before the one for all."""
        row = KINDS[kind]
        named: str | None = None if phase is None else getattr(self, row.parts[phase])
        if phase is None or (named is None and row.has_common_field):
            named = getattr(self, row.field)
        return None if named == AUTO or (row.optional and named == NONE) else named

    def uses(self, kind: str) -> tuple[PluginUse, ...]:
        """The plugins named for a kind that is not exclusive, in order."""
        uses: tuple[PluginUse, ...] = getattr(self, KINDS[kind].field)
        return uses

    def options_for(self, kind: str, instance: str) -> dict[str, Any]:
        """The raw options of an instance: those in its `PluginUse`, with those of `options` laid over them."""
        merged: dict[str, Any] = {}
        if not KINDS[kind].exclusive:
            for use in self.uses(kind):
                if use.instance == instance:
                    merged.update(use.options)
        merged.update(self.options.get(f"{kind}.{instance}", {}))
        return merged

    @property
    def plugin_time_budget_s(self) -> float | None:
        """In seconds."""
        return None if self.plugin_time_budget is None else self.plugin_time_budget / 1000

    @model_validator(mode="after")
    def _fits_together(self) -> ServerArgs:
        for name in ("tp_size", "pp_size", "dp_size"):
            if getattr(self, name) > 1:
                raise _contradiction("this version runs one rank only, so it must be 1", name)
        if self.max_total_tokens is not None and self.max_total_tokens < self.page_size:
            raise _contradiction(
                f"a KV cache of {self.max_total_tokens} tokens holds no page of {self.page_size} tokens",
                "max_total_tokens",
                "page_size",
            )
        if self.max_prefill_tokens < self.page_size:
            raise _contradiction(
                f"a step of {self.max_prefill_tokens} prompt tokens holds no page of {self.page_size} tokens",
                "max_prefill_tokens",
                "page_size",
            )
        chunk = self.chunked_prefill_size
        if chunk not in (None, CHUNKING_OFF):
            if chunk % self.page_size:
                raise _contradiction(
                    f"a chunk of {chunk} tokens is no whole number of pages of {self.page_size} tokens",
                    "chunked_prefill_size",
                    "page_size",
                )
            if chunk > self.max_prefill_tokens:
                raise _contradiction(
                    f"a step of {self.max_prefill_tokens} prompt tokens holds no chunk of {chunk} tokens",
                    "chunked_prefill_size",
                    "max_prefill_tokens",
                )
        if self.disable_cuda_graph and (self.cuda_graph_bs or self.cuda_graph_max_bs):
            raise _contradiction(
                "sizes of graphs that are switched off have no effect: leave them out",
                "disable_cuda_graph",
                *(name for name in ("cuda_graph_bs", "cuda_graph_max_bs") if getattr(self, name)),
            )
        if self.cuda_graph_bs and self.cuda_graph_max_bs:
            raise _contradiction(
                "with the sizes named one by one, a largest one would have no effect: leave it out",
                "cuda_graph_bs",
                "cuda_graph_max_bs",
            )
        if self.attention_backend and self.prefill_attention_backend and self.decode_attention_backend:
            raise _contradiction(
                "with a plugin named for prefill and one for decode, the one for both would have no effect: leave it out",
                "attention_backend",
                "prefill_attention_backend",
                "decode_attention_backend",
            )
        if self.skip_tokenizer_init and self.chat_template is not None:
            raise _contradiction(
                "a chat template needs the tokenizer that is skipped", "skip_tokenizer_init", "chat_template"
            )
        if self.api_key is not None and self.api_key == self.admin_api_key:
            raise _contradiction("with one key for both, every client is an admin", "api_key", "admin_api_key")
        if self.health_timeout <= self.metrics_interval:
            raise _contradiction(
                "steps are reported less often than a report is waited for", "health_timeout", "metrics_interval"
            )
        if self.revision is not None and self.model_path is None:
            raise _contradiction("the embedded model has no revisions: name a hub model as well", "revision")
        return self


def _contradiction(text: str, *names: str) -> PydanticCustomError:
    """Several fields that cannot stand together; `problems.py` adds where each came from."""
    return PydanticCustomError("contradiction", "{text}", {"text": text, "names": names})
