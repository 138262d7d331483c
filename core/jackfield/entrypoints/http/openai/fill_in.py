"""`suffix` of completions: the answer stands between two texts. What the markers are is `managers.text.fill_in_middle`'s."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.schemas.openai import CompletionBody
from jackfield.managers.requests.generate_request import GenerateRequest
from jackfield.managers.text.fill_in_middle import Markers, find_markers
from jackfield.managers.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class FillIn:
    suffix: str
    markers: Markers
    tokenizer: Tokenizer

    @classmethod
    def of(cls, body: CompletionBody, tokenizer: Tokenizer | None) -> FillIn:
        """For a body with a suffix. Raises ApiError if the model fills nothing in."""
        assert body.suffix is not None
        if body.echo:
            raise ApiError(
                400,
                "echo does not go with suffix: the answer stands between two texts",
                param="echo",
                code="invalid_value",
            )
        markers = None if tokenizer is None else find_markers(tokenizer.added_texts)
        if markers is None or tokenizer is None:
            raise ApiError(
                400,
                "suffix is not supported by this model: its tokenizer has no fill-in-the-middle tokens (fim_prefix, "
                "fim_suffix, fim_middle)",
                param="suffix",
                code="not_supported",
            )
        return cls(suffix=body.suffix, markers=markers, tokenizer=tokenizer)

    def around(self, request: GenerateRequest) -> GenerateRequest:
        """The request with each prompt as the text before what is to come; what is no prompt stays as it is, and is refused
        where all prompts are checked. Tokenizes, so it runs on a thread."""
        if isinstance(request.prompt, str):
            return replace(request, prompt=self.markers.prompt(request.prompt, self.suffix))
        if request.prompt is not None:
            return replace(request, prompt=[self._text(text) for text in request.prompt])
        begin = self.tokenizer.encode(self.markers.prefix, add_special_tokens=False)
        rest = self.markers.prompt("", self.suffix).removeprefix(self.markers.prefix)
        end = self.tokenizer.encode(rest, add_special_tokens=False, param="suffix")
        given: Any = request.input_ids
        if isinstance(given[0], list):
            lists = [[*begin, *ids, *end] if isinstance(ids, list) else ids for ids in given]
            return replace(request, input_ids=lists)
        return replace(request, input_ids=[*begin, *given, *end])

    def _text(self, text: Any) -> Any:
        return self.markers.prompt(text, self.suffix) if isinstance(text, str) else text
