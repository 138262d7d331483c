"""Kind `routes`: HTTP routes of a further protocol, on the same runtime. The core's own routes are records of the same class.

A route says what it is: path, methods, who may call it, the models of what goes in and comes out. The application, the reference,
`/openapi.json` and the tests that walk the table are made from that, so that none of them can forget a route. Knows no server.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from jackfield.hookspecs.chat import ChatRequest, ChatRun, TextRequest
from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec

if TYPE_CHECKING:
    from pydantic import BaseModel


class RouteLevel(enum.Enum):
    """Who may call a route: OPEN: anybody; KEY: whoever has the API key, if one is set; ADMIN: whoever has the admin key."""

    OPEN = "open"
    KEY = "key"
    ADMIN = "admin"


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


class RouteError(Exception):
    """An answer other than success.

    status    HTTP, 400 to 599
    message   reaches the client: keep it free of internals
    type      of the kind of error, as OpenAI has it; not given: by the status
    param     the field at fault, as the client writes it
    code      a word for programs
    headers   are added to the answer's own; names in lower case
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """In OpenAI's shape, which is that of all routes without one of their own."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


@dataclass(frozen=True, kw_only=True)
class RouteAnswer:
    """A complete answer.

    body         a JSON value; bytes are sent as they are, and then `media_type` says what they are
    headers      further ones; names in lower case
    """

    body: Any = None
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RouteStream:
    """An answer that grows. It has begun, and its status is 200, when the handler returns it.

    chunks       finished pieces of the body; closed in every case, also when the client goes away
    media_type   "text/event-stream", "application/x-ndjson", ...
    last_words   the piece that tells of an error out of `chunks`, after which nothing comes; None: a server-sent event with the
                 error's body
    """

    chunks: AsyncGenerator[bytes, None]
    media_type: str = "text/event-stream"
    last_words: Callable[[RouteError], bytes] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What is known of the served model.

    name              as clients call it; path: as the operator named it
    created           when it was up, seconds since the epoch
    context_length    tokens
    architecture      as in its configuration; config: the whole of that, in Hugging Face's shape
    dtype             in which it computes; quantization: how its weights are packed, as its configuration says; "" if they are
                      plain, or it does not say
    parameter_count   None: not known
    nbytes            of its files; None: not known
    is_generation     it writes text
    chat_template     Jinja source; "" if it has none
    """

    name: str
    path: str
    created: int
    context_length: int
    vocab_size: int
    architecture: str
    dtype: str
    quantization: str = ""
    parameter_count: int | None = None
    nbytes: int | None = None
    is_generation: bool = True
    has_tokenizer: bool = True
    chat_template: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)


class Runtime(Protocol):
    """What routes may use of the server. Everything raises RouteError for what a client is to be told; let it through.

    `chat`, `complete` and `count_tokens` are there for routes with `generates`: only those are drained, bounded and ended with
    their client.
    """

    @property
    def model(self) -> ModelCard:
        """RouteError 503 while the server starts."""
        ...

    @property
    def version(self) -> str:
        """Jackfield's."""
        ...

    @property
    def problem(self) -> str | None:
        """Why the server takes no requests, in words; None: it does."""
        ...

    def stack(self) -> Mapping[str, Any]:
        """The active stack, as `/plugins` shows it under `stack`."""
        ...

    async def tokenize(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids. The text of a special token is that token."""
        ...

    async def detokenize(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens included."""
        ...

    async def chat(self, request: ChatRequest) -> ChatRun:
        """Check a chat and hand it over. RouteError names the field as the client does (`ChatRequest.names`)."""
        ...

    async def complete(self, request: TextRequest) -> ChatRun:
        """As `chat`, for a plain prompt: its text is content, whatever it looks like."""
        ...

    async def count_tokens(self, request: ChatRequest) -> int:
        """The tokens of the prompt that `chat` would send, checked in the same way."""
        ...


@dataclass(kw_only=True)
class RouteRequest:
    """One request.

    body      an instance of the route's request model; None if it has none
    path      parameters of the path; query: its fields; headers: names in lower case
    method    "GET", "POST", ...; HEAD comes to routes with GET, and its answer is sent without a body
    label     the id under which the logs know it, and which the answer carries as X-Request-Id
    runtime   see `Runtime`
    """

    runtime: Runtime
    body: Any = None
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    method: str = "GET"


Handler = Callable[..., Awaitable["RouteAnswer | RouteStream"]]
"""async (RouteRequest) -> RouteAnswer | RouteStream"""


@dataclass(frozen=True, kw_only=True)
class Route:
    """path        "/v1/things/{id}": a parameter is a whole segment, and one, "{rest:path}", may be several; no two routes of a
                server match one path
    methods     of GET, POST, PUT, PATCH, DELETE; GET answers HEAD too
    handler     may raise RouteError. Any other exception is an answer 500 in fixed words, and a fault of the plugin. It must not
                block: all streams of the server wait for it
    summary     one sentence for the reference
    request     pydantic model of the JSON body, which GET has not; None: no body is read. What it refuses is a 400
    response    model of the answer; None: `answer` says in words what comes
    stream      model of a streamed piece; stream_type: the media type of a stream
    generates   takes part in draining, in the limit of concurrent requests, and in aborts when the client has gone
    query       query parameter -> what it means
    ceilings    list in the body -> the field of ServerArgs that says how long it may be; looked at before the model is made
    examples    bodies that the request model takes, the simplest first
    error_body  an error in the protocol's own shape, made of the error and the request's id; None: OpenAI's. error: its model
    id_header   a further header of every answer that carries the request's id; "" for none
    media_type  of the answer, for the reference
    """

    path: str
    methods: tuple[str, ...]
    level: RouteLevel
    handler: Handler
    summary: str
    request: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    stream: type[BaseModel] | None = None
    stream_type: str = "text/event-stream"
    generates: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    ceilings: Mapping[str, str] = field(default_factory=dict)
    answer: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()
    error_body: Callable[[RouteError, str], Any] | None = None
    error: type[BaseModel] | None = None
    id_header: str = ""
    media_type: str = "application/json"


@dataclass(frozen=True, kw_only=True)
class RoutesContext(PluginContext):
    """Nothing beyond the common fields: a handler gets the runtime with each request."""


class RoutesSpecs:
    @hookspec
    def jackfield_routes(self, context: RoutesContext) -> Sequence[Route]:  # type: ignore[empty-body]
        """The routes of a protocol.

        Process: main. When: once at start, before the model is up. Cost: any. A path that another plugin or the core has, a
        route without a summary, or an open one that is not declared (feature "open_routes") or generates, is an error of the
        start. Example:

            @hookimpl
            def jackfield_routes(context: RoutesContext) -> Sequence[Route]:
                from my_package.protocol import CompleteAnswer, CompleteBody, complete

                return [
                    Route(
                        path="/my/complete",
                        methods=("POST",),
                        level=RouteLevel.KEY,
                        handler=complete,
                        summary="A prompt goes on.",
                        request=CompleteBody,
                        response=CompleteAnswer,
                        generates=True,
                    )
                ]
        """
