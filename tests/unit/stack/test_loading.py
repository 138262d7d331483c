from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs import KINDS, LIFECYCLE_HOOKS, SPECS, AttentionContext
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.hooks import hook_table
from jackfield.stack.loading.load import LoadedStack, load_stack
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin
from tests.unit.stack.distributions import POLICY, Site, plugin_row

FIELDS: Mapping[str, Any] = MappingProxyType({"max_running": 4, "page_size": 1, "total_slots": 64})


def install(site: Site, source: str, kind: str = "schedule_policy", name: str = "mine", **row: Any) -> SelectedPlugin:
    """Install one plugin with this source and select it."""
    package = site.add("acme-plugin", plugin_row(kind, name, **row), version="1.2", sources={name: source})
    (found,) = discover([str(site.folder)]).find(kind, name)
    assert found.manifest is not None, found.problem
    return SelectedPlugin(
        kind=kind,
        name=name,
        instance=name,
        distribution=found.distribution,
        version=found.version,
        package=package,
        module=found.module,
        manifest=found.manifest,
        reason="named by the test",
        phases=("prefill", "decode") if kind == "attention" else (),
    )


def load(*plugins: SelectedPlugin, role: str = "inline") -> LoadedStack:
    return load_stack(ResolvedStack(plugins=plugins), role)


def load_refused(site: Site, source: str, kind: str = "schedule_policy", **row: Any) -> str:
    selected = install(site, source, kind, **row)
    with pytest.raises(PluginLoadError) as caught:
        load(selected)
    message = str(caught.value)
    assert f"{kind} plugin 'mine' (acme-plugin 1.2)" in message
    return message


def test_a_plugin_is_made_with_its_context(live_site: Site) -> None:
    made = load(install(live_site, POLICY)).make("schedule_policy", **FIELDS)
    context = made.context
    assert (context.kind, context.name, context.instance, context.options) == ("schedule_policy", "mine", "mine", None)
    assert (context.max_running, context.page_size, context.total_slots) == (4, 1, 64)


def test_a_maker_takes_the_fields_as_a_mapping(live_site: Site) -> None:
    loaded = load(install(live_site, POLICY))
    assert loaded.maker("schedule_policy")(FIELDS).context.total_slots == 64


def test_the_same_plugin_for_both_phases_has_one_maker(live_site: Site) -> None:
    source = """
from jackfield.hookspecs import AttentionBackend, hookimpl


class Backend(AttentionBackend):
    def __init__(self, context): self.context = context
    def bind(self, kv): ...
    def plan(self, batch): ...
    def attend(self, plan, layer, q, k, v, out): ...


@hookimpl
def jackfield_attention_backend(context):
    return Backend(context)
"""
    loaded = load(install(live_site, source, "attention"))
    maker = loaded.maker("attention", phase="prefill")
    assert maker is loaded.maker("attention", phase="decode")
    # Whatever else the context holds is the core's business, not the loader's.
    common = {"kind", "name", "instance"}
    fields: dict[str, Any] = {
        field.name: None
        for field in dataclasses.fields(AttentionContext)
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in common
    }
    context = maker(fields | {"phases": ("prefill", "decode")}).context
    assert (context.instance, context.phases) == ("mine", ("prefill", "decode"))


def test_wrong_fields_are_the_callers_error(live_site: Site) -> None:
    with pytest.raises(TypeError, match="total_slot"):
        load(install(live_site, POLICY)).make("schedule_policy", total_slot=1)


def test_only_the_plugins_of_the_role_are_imported(live_site: Site) -> None:
    selected = install(live_site, "raise RuntimeError('imported')")
    loaded = load(selected, role="main")
    assert not loaded.has("schedule_policy")
    with pytest.raises(LookupError, match="0 plugins of kind 'schedule_policy'"):
        loaded.make("schedule_policy")
    with pytest.raises(PluginLoadError, match="RuntimeError: imported"):
        load(selected, role="scheduler")


def test_the_manifest_may_narrow_the_processes(live_site: Site) -> None:
    source = "from jackfield.hookspecs import hookimpl\n@hookimpl\ndef jackfield_observer(): ...\n"
    selected = install(live_site, source, "observer", processes=["main"])
    assert load(selected, role="main").has("observer")
    assert not load(selected, role="scheduler").has("observer")


def test_an_exception_at_import_names_plugin_version_and_cause(live_site: Site) -> None:
    selected = install(live_site, "raise ValueError('no\\nluck')")
    with pytest.raises(PluginLoadError, match=r"cannot be imported: .* raised ValueError: no luck") as caught:
        load(selected)
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value, ConfigurationError)


def test_a_missing_dependency_says_what_to_install(live_site: Site) -> None:
    assert "Install what provides 'surely_absent'" in load_refused(live_site, "import surely_absent.part")


def test_a_module_that_exits_does_not_end_the_program(live_site: Site) -> None:
    assert "SystemExit: 3" in load_refused(live_site, "raise SystemExit(3)")


def test_an_exception_at_creation(live_site: Site) -> None:
    loaded = load(install(live_site, POLICY.replace("return Policy(context)", "raise KeyError('seat')")))
    with pytest.raises(
        PluginLoadError, match=r"'mine' \(acme-plugin 1\.2\) could not be made: .* raised KeyError: 'seat'"
    ):
        loaded.make("schedule_policy", **FIELDS)


def test_a_model_file_error_at_creation_is_told_in_its_own_words(live_site: Site) -> None:
    source = """
from jackfield.hookspecs import ModelSourceError, hookimpl


@hookimpl
def jackfield_model_source(context):
    raise ModelSourceError(f"{context.path} is truncated: fetch it again")
"""
    loaded = load(install(live_site, source, "loader"))
    with pytest.raises(
        PluginLoadError, match=r"loader plugin 'mine' \(acme-plugin 1.2\): m.x is truncated: fetch it again"
    ):
        loaded.make("loader", path="m.x")


def test_a_wrong_return_type_names_the_expected_class(live_site: Site) -> None:
    loaded = load(install(live_site, POLICY.replace("return Policy(context)", "return 3")))
    with pytest.raises(
        PluginLoadError, match=r"returned int, not a jackfield\.hookspecs\.schedule_policy\.SchedulePolicy"
    ):
        loaded.make("schedule_policy", **FIELDS)


def test_an_unfinished_subclass_names_what_is_missing(live_site: Site) -> None:
    loaded = load(install(live_site, POLICY.replace("def order", "def oder")))
    with pytest.raises(PluginLoadError, match=r"abstract method '?order"):
        loaded.make("schedule_policy", **FIELDS)


IMPORT = "from jackfield.hookspecs import hookimpl\n"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("", "registers no hook of kind 'schedule_policy': decorate jackfield_schedule_policy with @hookimpl"),
        ("def jackfield_schedule_policy(context): ...", "is not decorated with @hookimpl"),
        (IMPORT + "@hookimpl\ndef jackfield_schedule_polcy(context): ...", "did you mean 'jackfield_schedule_policy'"),
        (IMPORT + "@hookimpl\nasync def jackfield_schedule_policy(context): ...", "is async"),
        (IMPORT + "@hookimpl\nasync def jackfield_schedule_policy(context): yield", "is async"),
        (IMPORT + "@hookimpl(wrapper=True)\ndef jackfield_schedule_policy(context): return (yield)", "is a wrapper"),
        (IMPORT + "@hookimpl(hookwrapper=True)\ndef jackfield_schedule_policy(context): yield", "is a wrapper"),
        (IMPORT + "@hookimpl\ndef jackfield_schedule_policy(context): yield 1", "is a generator"),
        (IMPORT + "@hookimpl(tryfirst=True)\ndef jackfield_schedule_policy(context): ...", "tryfirst"),
        (IMPORT + "@hookimpl\ndef jackfield_schedule_policy(context=None): ...", "gives 'context' a default"),
        (IMPORT + "@hookimpl\ndef jackfield_schedule_policy(contxt): ...", "'contxt'; did you mean 'context'?"),
        (IMPORT + "@hookimpl\ndef jackfield_schedule_policy(*args): ...", "must name its arguments"),
        (IMPORT + "@hookimpl\ndef jackfield_schedule_policy(**kwargs): ...", "must name its arguments"),
        (POLICY + "@hookimpl\ndef jackfield_ops(context): ...", "jackfield_ops is a hook of kind 'ops'"),
    ],
)
def test_hook_implementations_that_break_the_contract(live_site: Site, source: str, text: str) -> None:
    assert text in load_refused(live_site, source)


def test_a_lifecycle_hook_of_the_module_is_told_to_move(live_site: Site) -> None:
    source = IMPORT + "@hookimpl\ndef jackfield_requests_received(requests): ...\n"
    assert "is a method of the object that jackfield_observer returns" in load_refused(live_site, source, "observer")


@pytest.mark.goal_row(18)
def test_a_hook_is_passed_only_the_arguments_that_it_names(live_site: Site) -> None:
    source = POLICY.replace("jackfield_schedule_policy(context)", "jackfield_schedule_policy()").replace(
        "Policy(context)", "Policy(None)"
    )
    assert load(install(live_site, source)).make("schedule_policy", **FIELDS).context is None


def test_an_implementation_may_be_named_otherwise_and_need_no_context(live_site: Site) -> None:
    source = POLICY.replace("@hookimpl", "@hookimpl(specname='jackfield_schedule_policy')").replace(
        "def jackfield_schedule_policy", "def make_it"
    )
    assert load(install(live_site, source)).make("schedule_policy", **FIELDS) is not None


def test_two_names_may_share_a_module(live_site: Site) -> None:
    selected = install(live_site, POLICY)
    other = SelectedPlugin(
        **{f: getattr(selected, f) for f in selected.__dataclass_fields__} | {"instance": "second", "name": "second"}
    )
    loaded = load(selected, other)
    assert loaded.make("schedule_policy", instance="second", **FIELDS).context.name == "second"
    with pytest.raises(LookupError, match="2 plugins"):
        loaded.make("schedule_policy", **FIELDS)


MODELS = """
from jackfield.hookspecs import ModelEntry, hookimpl


@hookimpl
def jackfield_models():
    return {"LlamaForCausalLM": ModelEntry(shape="a.b:c", model="a.b:D")}
"""


def test_models_are_those_of_the_manifest(live_site: Site) -> None:
    assert load(install(live_site, MODELS, "model")).models()["LlamaForCausalLM"].model == "a.b:D"


def test_models_that_differ_from_the_manifest(live_site: Site) -> None:
    loaded = load(install(live_site, MODELS, "model", architectures=["LlamaForCausalLM", "Other"]))
    with pytest.raises(PluginLoadError, match="its manifest and jackfield_models disagree over Other"):
        loaded.models()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("['LlamaForCausalLM']", "returned list, not a collections.abc.Mapping"),
        ("{'LlamaForCausalLM': 'a.b:C'}", "must return a mapping of ModelEntry"),
    ],
)
def test_models_that_are_no_mapping_of_entries(live_site: Site, answer: str, text: str) -> None:
    source = IMPORT + f"@hookimpl\ndef jackfield_models(): return {answer}"
    with pytest.raises(PluginLoadError, match=text):
        load(install(live_site, source, "model")).models()


def test_models_get_a_context(live_site: Site) -> None:
    source = MODELS.replace("jackfield_models()", "jackfield_models(context)").replace(
        "a.b:D", "{context.instance}.b:D"
    )
    source = source.replace('model="', 'model=f"')
    assert load(install(live_site, source, "model")).models()["LlamaForCausalLM"].model == "mine.b:D"


def test_the_hook_table_holds_every_hook_of_the_contract() -> None:
    declared = {name for specs in SPECS for name in vars(specs) if name.startswith("jackfield_")}
    assert set(hook_table()) == declared
    heard = {name for name, hook in hook_table().items() if hook.kind == "observer"}
    assert heard == {"jackfield_observer", *LIFECYCLE_HOOKS}
    assert {hook.name for hook in hook_table().values() if hook.parameters == ("context",)} == {
        kind.hook for kind in KINDS.values()
    }


def test_a_row_without_options_has_the_manifest_type() -> None:
    assert ManifestRow(kind="cache", name="x").options is None
