"""Kind `parser`: finds the reasoning, or the tool calls, in the text that a model writes.

One plugin reads one format, for reasoning or for tool calls; its manifest's `features` says which. It is made once, in the
main process, and gives a stream for each choice of each answer. It knows no token, no route and no protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.hookspecs.markers import hookspec


@dataclass(frozen=True, kw_only=True)
class Content:
    """Text of the answer proper."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Reasoning:
    """Text of the reasoning, without its marks."""

    text: str


@dataclass(frozen=True, kw_only=True)
class CallBegin:
    """A tool call begins. The core numbers the calls of a choice from 0 and gives an id to each that has none.

    id   the model's own id of the call, where its format has one
    """

    name: str
    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class CallArguments:
    """A piece of the JSON text of the latest call's arguments. All pieces of a call, joined, are one JSON object, unless the
    text was cut off, or the model wrote what is none: it is given as written, and nobody repairs it."""

    text: str


Piece = Content | Reasoning | CallBegin | CallArguments


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that the client offers.

    parameters   its JSON schema; empty: any object
    strict       calls must keep to the schema exactly
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False


class TextStream(ABC):
    """Reads the text of one choice as it comes.

    However the text is cut into chunks, the pieces, those of one sort behind each other joined, are the same. Nothing is held
    back longer than it takes to tell what it is, and the time is linear in the text. It never raises for what a model writes:
    what is no well-formed call is `Content`, as written.
    """

    @abstractmethod
    def feed(self, text: str) -> Sequence[Piece]:
        """What is known now; no piece is empty."""

    @abstractmethod
    def finish(self) -> Sequence[Piece]:
        """The text is over, complete or cut off: what was held back. Nothing is invented, no closing brace. Called once."""


class Parser:
    """What is common to both sorts.

    keeps_special_tokens   the format's marks are special tokens of the model, so that the text must be decoded with them
    """

    keeps_special_tokens: bool = False


class ReasoningParser(Parser, ABC):
    """Makes `Reasoning` and `Content` of the text; what the content holds is the tool call parser's business.

    end               the text that ends the reasoning; a grammar of the answer begins behind it
    template_switch   variables of the chat template that turn the reasoning on (True) and off (False), such as
                      ("enable_thinking",); empty: it cannot be switched
    """

    end: str
    template_switch: tuple[str, ...] = ()

    @abstractmethod
    def opened(self, prompt_end: str) -> bool:
        """Whether the prompt, of which this is the end (some hundred characters), leaves the reasoning open, so that the answer
        begins inside it."""

    @abstractmethod
    def stream(self, *, opened: bool) -> TextStream:
        """For one choice. opened: as `opened` answered for its prompt."""


class ToolCallParser(Parser, ABC):
    """Makes `Content`, `CallBegin` and `CallArguments` of the text behind the reasoning."""

    @abstractmethod
    def stream(self, tools: Sequence[Tool]) -> TextStream:
        """For one choice. A call of a name that is not among `tools` is none: its text is `Content`, as written."""

    @abstractmethod
    def grammar(self, tools: Sequence[Tool], *, required: bool, parallel: bool) -> GrammarSpec | None:
        """The answers in this format, so that whatever keeps to it is read by `stream` as valid calls.

        required   at least one call, and nothing else (`tools` are just those that may be called); else free text, in which
                   each call keeps to the schema of its tool
        parallel   more than one call may stand in one answer

        None: no grammar describes it. The core then asks for a plain JSON list of calls, and reads that.
        """


@dataclass(frozen=True, kw_only=True)
class ParserContext(PluginContext):
    """chat_template: the model's own, Jinja source; "" if it has none."""

    chat_template: str = ""


class ParserSpecs:
    @hookspec
    def jackfield_parser(self, context: ParserContext) -> Parser:  # type: ignore[empty-body]
        """Make the parser: a `ReasoningParser` for the feature "reasoning", a `ToolCallParser` for "tool_calls".

        Process: main. When: once at start. Cost: any. By which marks `auto` knows the plugin's format in a chat template stands
        in its manifest (`templates`). Example:

            @hookimpl
            def jackfield_parser(context: ParserContext) -> Parser:
                from my_package.format import MyFormat

                return MyFormat()
        """
