from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.config.errors import ConfigurationError
from jackfield.config.names import PluginUse
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.selection.resolution import resolve
from tests.unit.stack.catalogues import CPU, OURS, catalogue, facts, names, reason, refused, resolved, row


def test_the_default_stack() -> None:
    assert names(resolved()) == {
        "attention": "torch",
        "cache": "radix",
        "schedule_policy": "fcfs",
        "event_loop": "normal",
        "model": "llama",
        "loader": "gguf",
        "worker": "torch",
        "ops": "torch",
    }


def test_plugins_stand_in_the_order_of_the_kinds() -> None:
    order = [plugin.kind for plugin in resolved(observer=(PluginUse(plugin="jsonl"),)).stack.plugins]
    assert order == [
        kind for kind in KINDS if (KINDS[kind].exclusive and not KINDS[kind].optional) or kind == "observer"
    ]


def test_a_run_can_do_without_a_grammar_backend() -> None:
    backend = row("grammar", "mine", distribution="jackfield-ops-torch")
    stranger = row("grammar", "other", distribution="acme")
    able = catalogue(backend)
    unable = catalogue(
        backend, row("worker", "plain", distribution="jackfield-ops-torch", priority=11), without="worker"
    )
    found = resolved(able)
    assert names(found)["grammar"] == found.args.grammar_backend == "mine"
    off = resolved(able, grammar_backend="none")
    assert "grammar" not in names(off)
    assert reason(off, "grammar", "mine") == "--grammar-backend is none"
    alone = resolved(catalogue(stranger))
    assert alone.args.grammar_backend == "none"
    assert "acme is not one of our distributions" in reason(alone, "grammar", "other")
    cases: list[tuple[Catalogue, dict[str, Any], str]] = [
        (unable, {}, "applies no token masks"),
        (able, {"skip_tokenizer_init": True}, "--skip-tokenizer-init leaves no vocabulary"),
    ]
    for rows, more, why in cases:
        without = resolved(rows, **more)
        assert without.args.grammar_backend == "none"
        assert why in reason(without, "grammar", "mine")
        with pytest.raises(ConfigurationError, match=f"--grammar-backend: .*{why}"):
            resolved(rows, grammar_backend="mine", **more)
    with pytest.raises(ConfigurationError, match=r"no grammar plugin 'mime'.*did you mean 'mine'"):
        resolved(able, grammar_backend="mime")


def test_every_installed_plugin_is_chosen_or_rejected_with_a_reason() -> None:
    rows = catalogue(
        row("cache", "odd", status=Status.BROKEN, problem="its manifest is odd"),
        row("observer", "other", distribution="acme"),
    )
    resolution = resolved(rows)
    chosen = {(plugin.kind, plugin.name) for plugin in resolution.stack.plugins}
    turned_down = {(r.kind, r.name) for r in resolution.stack.rejected}
    assert not chosen & turned_down
    assert chosen | turned_down == {(r.kind, r.name) for r in rows}
    assert all(r.reason for r in resolution.stack.rejected)
    assert all(plugin.reason for plugin in resolution.stack.plugins)
    assert reason(resolution, "cache", "odd") == "its manifest is odd"
    assert reason(resolution, "cache", "chunk") == "its priority 0 does not exceed that of 'radix'"
    assert reason(resolution, "metrics", "prometheus") == "not named by --metrics"


@pytest.mark.goal_row(12)
@pytest.mark.parametrize("kind", list(KINDS))
def test_each_candidate_of_each_kind_has_its_own_reason(kind: str) -> None:
    """Broken, in conflict, of a stranger, denied, for naming alone: whatever the kind."""
    more: dict[str, Any] = {"architectures": ("LlamaForCausalLM",)} if kind == "model" else {}
    more |= {"files": ("*.gguf",)} if kind == "loader" else {}
    more |= {"features": ("tool_calls",), "templates": (("<tool_call>",),)} if kind == "parser" else {}
    twins = [
        row(kind, "twin", distribution=f"acme-{side}", status=Status.CONFLICT, problem="a and b offer it")
        for side in "ab"
    ]
    rows = catalogue(
        row(kind, "broken", distribution="acme", status=Status.BROKEN, problem="its manifest is odd"),
        row(kind, "stranger", distribution="acme", priority=99, **more),
        row(kind, "denied", distribution="acme", priority=99, **more),
        row(kind, "shy", distribution="jackfield-ops-torch", priority=-1, **more),
        *twins,
    )
    resolution = resolved(rows, model=facts(chat_template="<tool_call>"), plugin_deny=(f"{kind}.denied",))
    told = {(r.name, r.origin): r.reason for r in resolution.stack.rejected if r.kind == kind}
    chosen = {plugin.name for plugin in resolution.stack.of(kind)}
    assert {name for name, _ in told} | chosen == {r.name for r in rows.rows(kind)}
    assert told["broken", "acme 0.1.0"] == "its manifest is odd"
    assert told["twin", "acme-a 0.1.0"] == told["twin", "acme-b 0.1.0"] == "a and b offer it"
    assert told["denied", "acme 0.1.0"] == f"--plugin-deny {kind}.denied denies it"
    flag = KINDS[kind].flag
    if not KINDS[kind].exclusive:
        assert not chosen
        assert told["stranger", "acme 0.1.0"] == told["shy", "jackfield-ops-torch 0.1.0"] == f"not named by {flag}"
        return
    assert told["stranger", "acme 0.1.0"].startswith(
        "acme is not one of our distributions: allow it with --plugin-allow acme"
    )
    assert told["shy", "jackfield-ops-torch 0.1.0"] == f"it is used only when named: {flag} shy"


@pytest.mark.goal_row(12)
def test_what_has_no_kind_here_and_what_is_open_have_reasons_too() -> None:
    torn = PluginRow(
        kind="", name="", distribution="torn", version="1", status=Status.BROKEN, problem="it cannot be read"
    )
    later = PluginRow(
        kind="stage", name="x", distribution="later", version="2", status=Status.UNKNOWN_KIND, problem="no kind"
    )
    resolution = resolve(ServerArgs(), CPU, None, catalogue(torn, later))
    told = {(r.kind, r.name, r.origin): r.reason for r in resolution.stack.rejected}
    assert told["", "", "torn 1"] == "it cannot be read"
    assert told["stage", "x", "later 2"] == "no kind"
    assert told["loader", "gguf", f"{OURS['loader']} 0.1.0"].startswith(
        "open: the model is not here yet, and decides which"
    )
    assert told["model", "llama", f"{OURS['model']} 0.1.0"].startswith("open: the model is not here yet")


def test_filled_in_arguments_carry_their_rule() -> None:
    resolution = resolved()
    changes = {change.field: change for change in resolution.changes}
    assert changes["cache_policy"].before is None
    assert changes["cache_policy"].after == resolution.args.cache_policy == "radix"
    assert changes["cache_policy"].rule == "highest priority (10) of chunk, radix"
    assert resolution.args.dtype == "bfloat16"
    assert changes["dtype"].rule == "the checkpoint's dtype"
    assert resolution.args.device == "cpu"
    assert resolution.args.load_format == "gguf"
    assert resolution.args.context_length == 8192
    assert resolution.args.attention_backend == "torch"
    assert resolution.args.served_model_name == "m"
    # The completed arguments are valid ones, and resolving them again changes nothing.
    again = resolve(ServerArgs.model_validate(resolution.args.model_dump()), CPU, facts(), catalogue())
    assert again.changes == ()
    assert names(again) == names(resolution)


def test_nothing_that_was_given_is_changed() -> None:
    resolution = resolved(cache_policy="chunk", dtype="float32", context_length=100, max_running_requests=3)
    assert not {"cache_policy", "dtype", "context_length", "max_running_requests"} & {
        c.field for c in resolution.changes
    }


def test_a_small_cache_bounds_the_running_requests() -> None:
    assert resolved(max_total_tokens=64, page_size=16).args.max_running_requests == 4
    assert resolved(max_total_tokens=100_000).args.max_running_requests == 256


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (
            "attention_backend",
            "trch",
            "--attention-backend: no attention plugin 'trch' is installed; did you mean 'torch'?",
        ),
        ("cache_policy", "radx", "--cache-policy: no cache plugin 'radx' is installed; did you mean 'radix'?"),
        (
            "schedule_policy",
            "fcsf",
            "--schedule-policy: no schedule_policy plugin 'fcsf' is installed; did you mean 'fcfs'?",
        ),
        ("event_loop", "norml", "did you mean 'normal'?"),
        ("worker", "troch", "did you mean 'torch'?"),
        ("ops", "zzz", "no ops plugin 'zzz' is installed; installed: torch"),
        ("model_impl", "lama", "--model-impl: no model plugin 'lama' is installed; did you mean 'llama'?"),
        ("load_format", "guff", "--load-format: no loader plugin 'guff' is installed; did you mean 'gguf'?"),
        ("metrics", (PluginUse(plugin="promtheus"),), "did you mean 'prometheus'?"),
        (
            "observer",
            (PluginUse(plugin="json"),),
            "--observer: no observer plugin 'json' is installed; did you mean 'jsonl'?",
        ),
    ],
)
def test_a_misspelt_plugin_stops_with_the_nearest_name(field: str, value: Any, text: str) -> None:
    assert text in refused(**{field: value})


def test_messages_name_the_source_of_the_value() -> None:
    message = refused(cache_policy="radx", provenance={"cache_policy": "environment JACKFIELD_CACHE_POLICY"})
    assert message.startswith("--cache-policy (from environment JACKFIELD_CACHE_POLICY): ")
    assert resolved(cache_policy="chunk", provenance={"cache_policy": "stack file s.toml"}).stack.of("cache")[
        0
    ].reason == ("named by --cache-policy (from stack file s.toml)")


def test_a_broken_plugin_stops_only_when_it_is_selected() -> None:
    rows = catalogue(row("cache", "odd", status=Status.BROKEN, problem="its manifest is odd"))
    assert names(resolved(rows))["cache"] == "radix"
    message = refused(rows, cache_policy="odd")
    assert "cache plugin 'odd' (jackfield-cache-prefix 0.1.0) cannot be used: its manifest is odd" in message


def test_a_strangers_priority_takes_nothing_over_unless_allowed() -> None:
    rows = catalogue(row("cache", "loud", distribution="acme", priority=1000))
    resolution = resolved(rows)
    assert names(resolution)["cache"] == "radix"
    assert "allow it with --plugin-allow acme or name the plugin with --cache-policy loud" in reason(
        resolution, "cache", "loud"
    )
    assert names(resolved(rows, plugin_allow=("Acme",)))["cache"] == "loud"
    assert names(resolved(rows, cache_policy="loud"))["cache"] == "loud"


def test_a_negative_priority_means_only_when_named() -> None:
    """A run must never fall to the simulated worker because the real one is not there."""
    message = refused(catalogue(without="worker.torch"))
    assert "no worker plugin can serve here" in message
    assert "simulated (jackfield-worker-simulated 0.1.0): it is used only when named: --worker simulated" in message
    assert names(resolved(worker="simulated"))["worker"] == "simulated"


def test_a_tie_is_told() -> None:
    rows = catalogue(row("cache", "aaa", priority=10))
    cache = resolved(rows).stack.of("cache")[0]
    assert cache.name == "aaa"
    assert cache.reason == "first by name of a tie at priority 10 with radix; --cache-policy decides it"


def test_no_plugin_of_a_kind_is_installed() -> None:
    assert "no event_loop plugin is installed" in refused(catalogue(without="event_loop"))


def test_a_conflict_stops_when_named_and_when_it_would_be_chosen() -> None:
    both = "acme 1 and jackfield-cache-prefix 0.1.0 both offer cache 'radix': uninstall one"
    ours, theirs = (
        row("cache", "radix", distribution=distribution, priority=10, status=Status.CONFLICT, problem=both)
        for distribution in ("jackfield-cache-prefix", "acme")
    )
    rows = catalogue(ours, theirs, without="cache.radix")
    assert both in refused(rows)
    assert both in refused(rows, cache_policy="radix")
    resolution = resolved(rows, cache_policy="chunk")
    assert {r.reason for r in resolution.stack.rejected if r.name == "radix"} == {both}


def test_a_policys_needs_decide_which_caches_fit() -> None:
    message = refused(cache_policy="chunk", schedule_policy="shortest")
    assert "schedule policy 'shortest' needs 'cached_tokens', which it does not offer" in message
    high = catalogue(row("cache", "plain", priority=99))
    assert names(resolved(high, schedule_policy="shortest"))["cache"] == "radix"
    assert reason(resolved(cache_policy="chunk"), "schedule_policy", "shortest") == (
        "it needs 'cached_tokens', which cache 'chunk' does not offer"
    )


def test_a_worker_without_a_model_takes_no_attention_model_and_ops() -> None:
    resolution = resolved(worker="simulated")
    assert set(names(resolution)) == {"cache", "schedule_policy", "event_loop", "loader", "worker"}
    assert resolution.stack.layout is None
    assert reason(resolution, "attention", "torch") == "worker 'simulated' uses no attention plugin"


@pytest.mark.parametrize("field", ["attention_backend", "decode_attention_backend", "ops", "model_impl"])
def test_naming_a_plugin_that_the_worker_does_not_use_is_refused(field: str) -> None:
    name = "llama" if field == "model_impl" else "torch"
    named: dict[str, Any] = {field: name}
    message = refused(worker="simulated", **named)
    assert f"--{field.replace('_', '-')} names '{name}', but worker 'simulated' uses no" in message


def test_the_loader_that_recognises_the_files_is_chosen() -> None:
    sharded = facts(files=("config.json", "model.safetensors.index.json", "model-00001.safetensors"))
    assert names(resolved(model=sharded))["loader"] == "safetensors"
    assert (
        reason(resolved(model=sharded), "loader", "gguf") == "it reads *.gguf, and config.json is or holds no such file"
    )
    assert reason(resolved(), "loader", "dummy") == (
        "it recognises no file by itself: it is used only when named (--load-format dummy)"
    )
    assert names(resolved(load_format="dummy"))["loader"] == "dummy"


def test_files_that_no_loader_recognises() -> None:
    message = refused(model=facts(files=("pytorch_model.bin",)))
    assert "no loader plugin can serve here" in message
    assert "it reads *.gguf, and pytorch_model.bin is or holds no such file" in message


def test_a_named_loader_that_does_not_read_the_files_is_refused() -> None:
    assert "it reads *.safetensors or *.safetensors.index.json" in refused(load_format="safetensors")


def test_an_unknown_architecture_lists_what_is_available() -> None:
    message = refused(model=facts(architectures=["LlamaForCasualLM"]))
    assert "no installed model plugin offers the architecture LlamaForCasualLM" in message
    assert "did you mean 'LlamaForCausalLM'" in message
    assert "available: LlamaForCausalLM, MistralForCausalLM" in message


def test_two_plugins_that_offer_an_architecture_need_a_decision() -> None:
    rows = catalogue(row("model", "fast-llama", distribution="acme", architectures=("LlamaForCausalLM",)))
    message = refused(rows, plugin_allow=("acme",))
    assert "name one with --model-impl (fast-llama, llama)" in message
    assert "acme 0.1.0" in message
    assert names(resolved(rows, model_impl="fast-llama"))["model"] == "fast-llama"
    assert names(resolved(rows, model_impl="llama"))["model"] == "llama"


def test_a_model_plugin_that_is_only_for_naming_makes_no_ambiguity() -> None:
    rows = catalogue(row("model", "slow", architectures=("LlamaForCausalLM", "Slow"), priority=-1))
    assert names(resolved(rows))["model"] == "llama"
    assert names(resolved(rows, model_impl="slow"))["model"] == "slow"
    assert "it is used only when named: --model-impl slow" in refused(rows, model=facts(architectures=["Slow"]))


def test_the_only_offer_of_a_stranger_must_be_allowed_or_named() -> None:
    rows = catalogue(row("model", "fast", distribution="acme", architectures=("NewForCausalLM",)))
    model = facts(architectures=["NewForCausalLM"])
    assert "--plugin-allow acme or name the plugin with --model-impl fast" in refused(rows, model=model)
    assert names(resolved(rows, model=model, plugin_allow=("acme",)))["model"] == "fast"


def test_a_named_model_plugin_must_offer_the_architecture() -> None:
    message = refused(model=facts(architectures=["OtherForCausalLM"]), model_impl="llama")
    assert "it does not offer OtherForCausalLM; it offers LlamaForCausalLM, MistralForCausalLM" in message


def test_an_architecture_whose_only_plugin_is_incompatible() -> None:
    rows = catalogue(
        row("model", "x", architectures=("XForCausalLM",), status=Status.INCOMPATIBLE, problem="it was written for 9.9")
    )
    message = refused(rows, model=facts(architectures=["XForCausalLM"]))
    assert "no usable model plugin offers the architecture XForCausalLM" in message
    assert "it was written for 9.9" in message


def test_options_reach_their_instance() -> None:
    resolution = resolved(options={"cache.radix": {"eviction": "lru"}})
    (cache,) = resolution.stack.of("cache")
    assert cache.options == {"eviction": "lru"}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("attention.trch", 'options."attention.trch": there is no such instance in this stack; did you mean'),
        ("cache.chunk", "cache 'chunk' is installed but not part of this stack; this stack has cache.radix"),
        ("observer.jsonl", "observer 'jsonl' is installed but not part of this stack"),
    ],
)
def test_options_for_an_instance_that_does_not_run_are_refused(key: str, text: str) -> None:
    assert text in refused(options={key: {"x": 1}})


def test_options_refused_name_their_source() -> None:
    message = refused(options={"cache.chunk": {"x": 1}}, provenance={"options.cache.chunk.x": "--option"})
    assert 'options."cache.chunk" (from --option): ' in message


def test_two_uses_of_a_sink_are_two_instances() -> None:
    audit = PluginUse.model_validate({"plugin": "prometheus", "as": "audit", "options": {"port": 1}})
    uses = (PluginUse(plugin="prometheus"), audit)
    sinks = resolved(metrics=uses).stack.of("metrics")
    assert [(s.key, s.options) for s in sinks] == [("metrics.prometheus", {}), ("metrics.audit", {"port": 1})]


def test_two_uses_of_an_observer_are_two_instances_in_the_order_of_the_stack() -> None:
    uses = (
        PluginUse.model_validate({"plugin": "jsonl", "as": "second", "options": {"directory": "b"}}),
        PluginUse.model_validate({"plugin": "jsonl", "options": {"directory": "a"}}),
    )
    observers = resolved(observer=uses).stack.of("observer")
    assert [(use.key, use.options) for use in observers] == [
        ("observer.second", {"directory": "b"}),
        ("observer.jsonl", {"directory": "a"}),
    ]


def test_without_the_model_what_depends_on_it_is_open_and_noted() -> None:
    resolution = resolve(ServerArgs(options={"loader.gguf": {"x": 1}}), CPU, None, catalogue())
    assert {"loader", "model"}.isdisjoint(names(resolution))
    assert len(resolution.notes) == 3
    with pytest.raises(ConfigurationError, match="did you mean 'radix'"):
        resolve(ServerArgs(cache_policy="radx"), CPU, None, catalogue())
    with pytest.raises(ConfigurationError, match="did you mean 'llama'"):
        resolve(ServerArgs(model_impl="lama"), CPU, None, catalogue())
    assert names(resolve(ServerArgs(model_impl="llama"), CPU, None, catalogue()))["model"] == "llama"
    with pytest.raises(ConfigurationError, match=r"loader.guff.*no such instance"):
        resolve(ServerArgs(options={"loader.guff": {"x": 1}}), CPU, None, catalogue())


def test_resolution_is_deterministic_whatever_the_order_of_the_catalogue() -> None:
    rows = catalogue(row("cache", "aaa", priority=10))
    turned = Catalogue(tuple(reversed(rows.all_rows)))
    assert resolved(rows).stack.plugins == resolved(turned).stack.plugins


candidates = st.lists(
    st.tuples(
        st.integers(-2, 3),
        st.sampled_from(["acme", "jackfield-cache-prefix"]),
        st.sampled_from([Status.OK, Status.OK, Status.BROKEN, Status.INCOMPATIBLE]),
        st.sampled_from([(), ("cuda",), ("cpu", "cuda")]),
    ),
    max_size=6,
)


@given(candidates, st.booleans())
def test_whatever_is_installed_the_best_usable_one_of_the_trusted_is_chosen(
    installed: list[tuple[int, str, Status, tuple[str, ...]]], allow: bool
) -> None:
    rows = [
        row(
            "cache",
            f"c{i}",
            priority=priority,
            distribution=distribution,
            status=status,
            problem="odd",
            devices=devices,
        )
        for i, (priority, distribution, status, devices) in enumerate(installed)
    ]
    usable = [
        (-priority, f"c{i}")
        for i, (priority, distribution, status, devices) in enumerate(installed)
        if status is Status.OK and priority >= 0 and devices != ("cuda",) and (allow or distribution != "acme")
    ]
    everything = catalogue(*rows, without="cache")
    allowed = ("acme",) if allow and any(r.distribution == "acme" for r in rows) else ()
    if not usable:
        with pytest.raises(ConfigurationError, match="no cache plugin"):
            resolved(everything, plugin_allow=allowed)
        return
    resolution = resolved(everything, plugin_allow=allowed)
    assert names(resolution)["cache"] == min(usable)[1]
    turned_down = {r.name for r in resolution.stack.rejected if r.kind == "cache"}
    assert turned_down == {r.name for r in rows} - {min(usable)[1]}


@pytest.mark.parametrize(
    ("loop", "worker", "threaded", "why"),
    [
        ((), (), False, "no: event loop 'chosen' has one step in flight"),
        (
            ("overlap",),
            (),
            True,
            "yes: event loop 'chosen' goes on while a step runs, and worker 'made' does not declare",
        ),
        (("overlap",), ("async",), False, "no: worker 'made' declares 'async'"),
        ((), ("async",), False, "no: event loop 'chosen' has one step in flight"),
    ],
)
def test_a_worker_that_is_not_async_gets_a_thread_under_a_loop_that_overlaps(
    loop: tuple[str, ...], worker: tuple[str, ...], threaded: bool, why: str
) -> None:
    rows = catalogue(row("event_loop", "chosen", features=loop), row("worker", "made", features=worker))
    stack = resolved(rows, event_loop="chosen", worker="made").stack
    assert stack.worker_thread is threaded
    assert stack.worker_thread_reason.startswith(why)


@pytest.mark.goal_row(5)
@pytest.mark.parametrize("kind", [kind.name for kind in KINDS.values() if not kind.exclusive])
def test_one_plugin_serves_several_times_with_options_of_its_own(kind: str) -> None:
    """In the order in which it was named, in every kind that allows it."""
    field = KINDS[kind].field
    extra = [row(kind, name, distribution="acme", version="2") for name in ("multi", "other")]
    kept = [r for r in catalogue() if r.kind != "worker"]
    worker = row("worker", "able", features=("kv_move", "logits_processors"), needs=("loader",), priority=20)
    rows = Catalogue(tuple(sorted([*kept, worker, *extra], key=lambda r: (r.kind, r.name, r.distribution))))
    uses = [
        PluginUse.model_validate({"plugin": "multi", "as": "late", "options": {"a": 1}}),
        PluginUse(plugin="other"),
        PluginUse.model_validate({"plugin": "multi", "as": "early", "options": {"a": 2}}),
    ]
    args: Any = {field: tuple(uses), "options": {f"{kind}.early": {"b": 3}}}
    stack = resolved(rows, **args).stack
    assert [(p.name, p.instance, p.options) for p in stack.of(kind)] == [
        ("multi", "late", {"a": 1}),
        ("other", "other", {}),
        ("multi", "early", {"a": 2, "b": 3}),
    ]
