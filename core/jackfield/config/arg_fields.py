"""The fields of `ServerArgs`, each with what --help and the option reference say of it. Flag names are SGLang's where the
meaning is the same. Knows ranges; not what contradicts what, which `server_args` does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict

from jackfield.config.arg_types import (
    BatchSizes,
    ChunkSize,
    Dtype,
    FilePath,
    Fraction,
    JsonObject,
    Key,
    KVCacheDtype,
    LastingPath,
    NotNegative,
    Origin,
    Positive,
    PositiveNumber,
    Seconds,
    Switch,
    Text,
    Uses,
    canonical_options,
    loader_name,
    path_text,
    quantization_name,
    several,
)
from jackfield.config.fields import Option
from jackfield.config.names import AUTO, PluginChoice, PluginReference, PluginUse

MODEL = "Model"
SERVING = "Serving"
SECURITY = "Keys"
SCHEDULING = "Scheduling and memory"
PARALLEL = "Parallelism"
STACK = "Plugin stack"
OBSERVABILITY = "Observability"
GRAMMARS = "Constrained output"
FAULTS = "Faults and checks"


class ArgFields(BaseModel):
    """What can be set for a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_path: Annotated[Text | None, BeforeValidator(path_text), Option(MODEL, "PATH", ("--model",))] = Field(
        default=None,
        description="Directory, .gguf file or Hugging Face id of the model, or all-MiniLM-L6-v2, which comes in a Python "
        "package as the embedded one does; not given: the embedded SmolLM2-135M-Instruct.",
    )
    revision: Annotated[Text | None, Option(MODEL)] = Field(
        default=None, description="Branch, tag or commit of a model from the Hugging Face hub."
    )
    download_dir: Annotated[FilePath | None, Option(MODEL, "DIR")] = Field(
        default=None, description="Where fetched models are kept; not given: the user's cache directory."
    )
    served_model_name: Annotated[Text | None, Option(MODEL, "NAME")] = Field(
        default=None, description="Name under which the model is served; not given: derived from the model path."
    )
    weight_version: Annotated[Text, Option(MODEL, "NAME")] = Field(
        default="default",
        description="What the weights are called in meta_info of /generate and in /model_info; changes nothing else.",
    )
    load_format: Annotated[str, BeforeValidator(loader_name), Option(MODEL, "LOADER")] = Field(
        default=AUTO, description="Loader plugin that reads the model files; auto: the one that recognises them."
    )
    dtype: Annotated[Dtype, Option(MODEL)] = Field(
        default="auto", description="Type of weights and activations, and of the KV cache; auto: the checkpoint's own."
    )
    kv_cache_dtype: Annotated[KVCacheDtype, Option(MODEL)] = Field(
        default="auto",
        description="Type in which the KV cache keeps keys and values; auto: that of the run. A narrower one holds more tokens "
        "and rounds them; for attention plugins that declare kv:<type>.",
    )
    quantization: Annotated[Text, BeforeValidator(quantization_name), Option(MODEL, "NAME")] = Field(
        default=AUTO,
        description="Form of the linear weights. auto: packed weights of a GGUF file stay packed where the ops plugin multiplies "
        "them and the run is not in float32; none: all are decoded to --dtype; gguf: they must stay packed; w8a8_int8: int8 with "
        "one scale a row, and int8 activations.",
    )
    weight_cache_dir: Annotated[Text, BeforeValidator(path_text), Option(MODEL, "DIR")] = Field(
        default=AUTO,
        description="Where packed weights are kept for later starts, if the ops plugin exports them; auto: the user's cache "
        "directory; none: nothing is kept.",
    )
    weight_cache_size: Annotated[PositiveNumber, Option(MODEL, "GIB")] = Field(
        default=16.0,
        description="Most room that kept weights take, in GiB; those that were not used for longest go first.",
    )
    device: Annotated[Literal["auto", "cpu", "cuda"], Option(MODEL)] = Field(
        default="auto", description="Where the model runs; auto: a CUDA device if there is one, else the CPU."
    )
    context_length: Annotated[Positive | None, Option(MODEL, "TOKENS")] = Field(
        default=None,
        description="Longest sequence to compute: prompt and answer, but its last token; not given: what the model allows.",
    )
    json_model_override_args: Annotated[JsonObject | None, Option(MODEL, "JSON")] = Field(
        default=None, description="JSON object laid over the model's configuration; nested objects are merged."
    )
    is_embedding: Annotated[Switch, Option(MODEL)] = Field(
        default=False,
        description="Serve embeddings of a model that generates: its last token's hidden state, of length 1. Models that do not "
        "generate, and those with sentence-transformers' files, need no flag.",
    )
    skip_tokenizer_init: Annotated[Switch, Option(MODEL)] = Field(
        default=False,
        description="Load no tokenizer: requests and answers are token ids, without text and stop strings.",
    )
    chat_template: Annotated[FilePath | None, Option(MODEL, "FILE")] = Field(
        default=None, description="File with a Jinja chat template that replaces the model's own."
    )
    sampling_defaults: Annotated[Literal["model", "openai"], Option(MODEL)] = Field(
        default="model",
        description="Sampling defaults of a request that names none: the model's generation_config, or OpenAI's.",
    )
    preferred_sampling_params: Annotated[JsonObject | None, Option(MODEL, "JSON")] = Field(
        default=None,
        description="JSON object of sampling parameters that override the defaults; a request overrides both.",
    )
    random_seed: Annotated[Annotated[int, Strict(), Field(ge=0, le=2**63 - 1)] | None, Option(MODEL, "SEED")] = Field(
        default=None,
        description="Seed of the run; not given: drawn at start, and told by generate and in the server info.",
    )

    host: Annotated[Text, Option(SERVING)] = Field(
        default="127.0.0.1", description="Address on which the server listens."
    )
    port: Annotated[Annotated[int, Strict(), Field(ge=0, le=65535)], Option(SERVING)] = Field(
        default=30000, description="Port on which the server listens; 0: any free one."
    )
    topology: Annotated[Literal["processes", "inline"] | None, Option(SERVING)] = Field(
        default=None,
        description="inline: all in one process; processes: main, scheduler and detokenizer run on their own. Not given: "
        "`jackfield serve` runs processes, Engine and `jackfield generate` run inline.",
    )
    shutdown_timeout: Annotated[Positive, Option(SERVING, "SECONDS")] = Field(
        default=10, description="How long the processes of a replica may take to end; then they are killed."
    )
    api_key: Annotated[Key | None, Option(SECURITY, "KEY")] = Field(
        default=None,
        repr=False,
        description="Key of every route but /health, /ready and /ping; better given as JACKFIELD_API_KEY, which no "
        "process list shows. Not given: no key is asked for.",
    )
    admin_api_key: Annotated[Key | None, Option(SECURITY, "KEY")] = Field(
        default=None,
        repr=False,
        description="Key of the admin routes (and good for the others); with --api-key alone they are closed.",
    )
    allowed_host: Annotated[tuple[Text, ...], BeforeValidator(several), Option(SECURITY, "NAME")] = Field(
        default=(),
        description="Name under which clients may address a server that listens on the loopback and has no key, beside "
        "localhost and addresses; may be repeated; *: any. Keeps web pages from reaching it under a name of their own.",
    )
    cors_origin: Annotated[tuple[Origin, ...], BeforeValidator(several), Option(SECURITY, "ORIGIN")] = Field(
        default=(),
        description="Origin whose pages may use the server from a browser, such as https://chat.example; may be repeated; *: "
        "any. Admin routes are for none. Not given: no page of another origin.",
    )
    incremental_streaming_output: Annotated[Switch, Option(SERVING)] = Field(
        default=False,
        description="A streamed /generate sends what is new in each event, and not all of the answer so far.",
    )
    enable_response_store: Annotated[Switch, Option(SERVING)] = Field(
        default=False,
        description="Keep the responses of /v1/responses in memory, so that clients can fetch them, go on from them and run "
        "them in the background.",
    )
    response_store_entries: Annotated[Positive, Option(SERVING, "N")] = Field(
        default=1000, description="Most responses that are kept; the longest unused is forgotten first."
    )
    response_store_bytes: Annotated[Positive, Option(SERVING, "BYTES")] = Field(
        default=64 * 2**20, description="Most bytes of kept responses and their conversations, as JSON."
    )
    drain_timeout: Annotated[Positive, Option(SERVING, "SECONDS")] = Field(
        default=30, description="Seconds that open requests have to finish after SIGTERM; then they are aborted."
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error", "critical"], Option(SERVING)] = Field(
        default="info", description="Least level of messages that are logged."
    )
    log_requests: Annotated[Switch, Option(SERVING)] = Field(
        default=False, description="Log each request of the server when it has ended, one line on standard error."
    )
    log_requests_level: Annotated[Annotated[int, Strict(), Field(ge=0, le=3)], Option(SERVING)] = Field(
        default=2,
        description="What such a line holds. 0: ids, status, times, tokens; 1: parameters too; 2: the beginning of what was sent "
        "and answered; 3: all of it. Keys, salts and sessions are in none.",
    )
    log_requests_format: Annotated[Literal["text", "json"], Option(SERVING)] = Field(
        default="text", description="Form of such a line."
    )
    debug: Annotated[Switch, Option(SERVING)] = Field(
        default=False, description="Show the traceback of an error that stops the program."
    )

    max_running_requests: Annotated[Positive | None, Option(SCHEDULING, "N")] = Field(
        default=None,
        description="Most requests that run at once; not given: 256, or the pages of a smaller --max-total-tokens.",
    )
    max_queued_requests: Annotated[Positive | None, Option(SCHEDULING, "N")] = Field(
        default=None,
        description="Most requests that wait for a place or for memory; more are refused with 503. Not given: no limit.",
    )
    max_total_tokens: Annotated[Positive | None, Option(SCHEDULING, "TOKENS")] = Field(
        default=None, description="Size of the KV cache in tokens; not given: derived from the available memory."
    )
    mem_fraction_static: Annotated[Fraction | None, Option(SCHEDULING, "SHARE")] = Field(
        default=None,
        description="Share of the memory that the device has free at the start, above 0 and below 1, for weights and KV cache "
        "together; the rest is for computing. Not given: 0.9 on a CUDA device; on a CPU the KV cache takes a fifth of what the "
        "weights leave, and 65536 tokens at most.",
    )
    max_prefill_tokens: Annotated[Positive, Option(SCHEDULING, "TOKENS")] = Field(
        default=16384, description="Most prompt tokens that one step computes."
    )
    chunked_prefill_size: Annotated[ChunkSize | None, Option(SCHEDULING, "TOKENS")] = Field(
        default=None,
        description="Most tokens of one prompt that one step computes, whole pages; -1: a prompt is never cut, and one longer "
        "than --max-prefill-tokens has its step alone. Not given: --max-prefill-tokens.",
    )
    max_consecutive_prefills: Annotated[Positive, Option(SCHEDULING, "STEPS")] = Field(
        default=8,
        description="Steps that may compute prompts alone while running requests wait for their next token; then a step is "
        "theirs. For policies that put prompts first.",
    )
    page_size: Annotated[Positive, Option(SCHEDULING, "TOKENS")] = Field(
        default=1, description="Tokens in one page of the KV cache; prefixes are shared in whole pages."
    )
    schedule_conservativeness: Annotated[PositiveNumber, Option(SCHEDULING, "FACTOR")] = Field(
        default=1.0,
        description="How much memory admission reserves for outputs to come: 1 reserves 70 % of each request's "
        "max_new_tokens at first and less as long as nobody must be retracted; from 10.3 on always all of it.",
    )
    max_skips: Annotated[Positive, Option(SCHEDULING, "STEPS")] = Field(
        default=1000, description="Steps in which the policy may pass a waiting request over before it must run next."
    )

    disable_cuda_graph: Annotated[Switch, Option(SCHEDULING)] = Field(
        default=False,
        description="Run decode steps without recorded graphs; a CPU has none, nor have plugins that do not declare the feature "
        "graph.",
    )
    cuda_graph_bs: Annotated[BatchSizes, Option(SCHEDULING, "N")] = Field(
        default=(),
        description="Batch sizes for which decode steps are recorded, smaller batches being padded: 1 2 4, or 1,2,4. Not given: "
        "1, 2, 4 and every eighth up to --cuda-graph-max-bs.",
    )
    cuda_graph_max_bs: Annotated[Positive | None, Option(SCHEDULING, "N")] = Field(
        default=None,
        description="Largest batch size for which decode steps are recorded; not given: 256, or --max-running-requests if it "
        "is less.",
    )

    request_waiting_timeout: Annotated[Seconds | None, Option(SCHEDULING, "SECONDS")] = Field(
        default=None,
        description="Seconds after its arrival in which a request must begin to run, else it ends with 503; not given: no limit.",
    )
    request_running_timeout: Annotated[Seconds | None, Option(SCHEDULING, "SECONDS")] = Field(
        default=None,
        description="Seconds in which a request must end once it began to run, else it ends with 503; not given: no limit.",
    )

    tp_size: Annotated[Positive, Option(PARALLEL, "N", ("--tensor-parallel-size", "--tp"))] = Field(
        default=1, description="Tensor-parallel ranks of a replica; this version runs one."
    )
    pp_size: Annotated[Positive, Option(PARALLEL, "N", ("--pipeline-parallel-size",))] = Field(
        default=1, description="Pipeline stages of a replica; this version runs one."
    )
    dp_size: Annotated[Positive, Option(PARALLEL, "N", ("--data-parallel-size", "--dp"))] = Field(
        default=1, description="Replicas of the model; this version runs one."
    )

    attention_backend: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Attention plugin for prefill and decode; auto: chosen, with the reason shown."
    )
    prefill_attention_backend: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Attention plugin for prefill only, instead of --attention-backend."
    )
    decode_attention_backend: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Attention plugin for decode only, instead of --attention-backend."
    )
    cache_policy: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Prefix cache plugin."
    )
    schedule_policy: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Plugin that decides who runs next."
    )
    event_loop: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Plugin that drives the scheduler's phases."
    )
    worker: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Plugin that runs batches: on a real model or on a cost model."
    )
    ops: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Operator plugin."
    )
    model_impl: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None, description="Plugin with the model's code; needed when two offer one architecture."
    )
    tool_call_parser: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None,
        description="Parser plugin that finds tool calls in answers of the chat; auto: the one that knows the chat template's "
        "format, if there is one; none: tool calls stay text.",
    )
    reasoning_parser: Annotated[PluginChoice, Option(STACK, "PLUGIN", unset=AUTO)] = Field(
        default=None,
        description="Parser plugin that parts the reasoning from the answer; auto: the one that knows the chat template's "
        "format, if there is one; none: the reasoning stays in the answer.",
    )
    kv_tier: Annotated[Uses, Option(STACK, "PLUGIN")] = Field(
        default=(),
        description="Store of KV behind the prefix cache; may be repeated, the fastest first. A name, or "
        '{plugin = "p", as = "instance"}; none: what is evicted is computed again.',
    )
    kv_tier_block_tokens: Annotated[Positive, Option(STACK, "TOKENS")] = Field(
        default=64, description="Least tokens that a KV tier keeps under one key; rounded up to whole pages."
    )
    gate: Annotated[Uses, Option(STACK, "PLUGIN")] = Field(
        default=(),
        description='Gate for new requests; may be repeated. A name, or {plugin = "p", as = "instance"}; none: no gate.',
    )
    grammar_backend: Annotated[PluginChoice, Option(STACK, "PLUGIN|none", unset=AUTO)] = Field(
        default=None,
        description="Plugin that constrains answers to a schema, a pattern or a grammar; none: such requests are refused, and so "
        "they are where no such plugin is installed.",
    )
    grammar_compile_timeout: Annotated[Seconds, Option(GRAMMARS, "SECONDS")] = Field(
        default=10.0,
        description="How long one grammar may be compiled; then its process is killed, and the request refused.",
    )
    grammar_compile_memory: Annotated[Positive, Option(GRAMMARS, "BYTES")] = Field(
        default=2**30, description="Most memory that the compilation of one grammar may take; more is refused with 400."
    )
    grammar_compilations: Annotated[Positive, Option(GRAMMARS, "N")] = Field(
        default=2, description="Most grammars that are compiled side by side; the others wait their turn."
    )
    max_waiting_grammars: Annotated[Positive, Option(GRAMMARS, "N")] = Field(
        default=256, description="Most different grammars that wait for their compilation; more are refused with 503."
    )
    grammar_cache_bytes: Annotated[NotNegative, Option(GRAMMARS, "BYTES")] = Field(
        default=256 * 2**20, description="Memory for compiled grammars that are kept for later requests; 0: none is."
    )
    logits_processors: Annotated[Uses, Option(STACK, "PLUGIN")] = Field(
        default=(),
        description="Logits processor that requests may ask for; may be repeated, and is applied in this order. A name, or "
        '{plugin = "p", as = "instance"}; none: no processor.',
    )
    enable_deterministic_inference: Annotated[Switch, Option(STACK)] = Field(
        default=False,
        description="A request's logits and tokens have the same bits whatever the batch, the chunks, the cache and the page "
        "size, for one number of threads. Only plugins that declare batch_invariant for the device and dtype; slower.",
    )
    routes: Annotated[Uses, Option(STACK, "PLUGIN")] = Field(
        default=(PluginUse(plugin=AUTO),),
        description="Protocol beside Jackfield's own routes; may be repeated. A name, or "
        '{plugin = "p", as = "instance"}; auto: those of the project that are installed (anthropic, ollama, playground); '
        "none: no other protocol.",
    )
    metrics: Annotated[Uses, Option(STACK, "PLUGIN")] = Field(
        default=(),
        description='Metrics sink; may be repeated. A name, or {plugin = "p", as = "instance"}; none: no sink.',
    )
    observer: Annotated[Uses, Option(STACK, "PLUGIN")] = Field(
        default=(),
        description='Observer; may be repeated. A name, or {plugin = "p", as = "instance"}; none: no observer.',
    )
    options: Annotated[
        dict[str, dict[str, Any]],
        BeforeValidator(canonical_options),
        Option(STACK, "KIND.INSTANCE.FIELD=VALUE"),
    ] = Field(
        default_factory=dict,
        description="An option of a plugin instance; may be repeated. The value is read as TOML, else as text.",
    )
    locked: Annotated[FilePath | None, Option(STACK, "FILE")] = Field(
        default=None,
        description="Lock that `jackfield lock` wrote: a run whose core, plugins, options or resolution differ is refused, and "
        "told what differs.",
    )
    plugin: Annotated[tuple[LastingPath, ...], BeforeValidator(several), Option(STACK, "FILE")] = Field(
        default=(),
        description="Python file with plugins of its own, which its constant PLUGIN (or PLUGINS) describes; may be repeated. "
        "It offers them; that they serve another flag says.",
    )
    plugin_allow: Annotated[
        tuple[PluginReference, ...], BeforeValidator(several), Option(STACK, "DISTRIBUTION|KIND.NAME")
    ] = Field(
        default=(),
        description="Distribution of a third party, or one plugin of it, that automatic selection may choose; may be repeated.",
    )
    plugin_deny: Annotated[
        tuple[PluginReference, ...], BeforeValidator(several), Option(STACK, "DISTRIBUTION|KIND.NAME")
    ] = Field(
        default=(),
        description="Distribution, or one plugin, that must not serve; may be repeated. It goes before --plugin-allow, and a "
        "plugin that is named and denied is refused.",
    )

    metrics_interval: Annotated[NotNegative, Option(OBSERVABILITY, "SECONDS")] = Field(
        default=1,
        description="Least time between two reports of a busy scheduler, for metrics and health; 0: every step.",
    )
    throughput_log_interval: Annotated[NotNegative, Option(OBSERVABILITY, "SECONDS")] = Field(
        default=10, description="Time of work between two throughput lines in the log; 0: no lines."
    )
    health_timeout: Annotated[Positive, Option(OBSERVABILITY, "SECONDS")] = Field(
        default=20, description="The server is unhealthy if requests are open and no step is completed for so long."
    )
    skip_server_warmup: Annotated[Switch, Option(OBSERVABILITY)] = Field(
        default=False,
        description="Start without warming up: the server sends itself no short request that proves the path before it is ready, "
        "and a GPU's kernels are compiled when requests first need them.",
    )

    plugin_faults: Annotated[Literal["count", "raise"], Option(FAULTS)] = Field(
        default="count", description="An error in an observer or a metrics sink: count it, or stop."
    )
    plugin_fault_limit: Annotated[Positive, Option(FAULTS, "N")] = Field(
        default=10,
        description="Errors after which such a plugin is switched off (and a policy that fails stops the run).",
    )
    plugin_time_budget: Annotated[PositiveNumber | None, Option(FAULTS, "MS")] = Field(
        default=None,
        description="Milliseconds that one call of a plugin should take at most; a longer one is counted and logged, and goes "
        "on. Left out: no limit.",
    )
    check_invariants: Annotated[Literal["off", "idle", "step"], Option(FAULTS)] = Field(
        default="idle", description="When the scheduler checks its own accounts: never, when idle, or at every step."
    )
