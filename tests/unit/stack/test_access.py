"""Who may serve: what is installed is not active, what is allowed may be chosen, what is denied may not even be named."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.config.device import DeviceDescription, describe_device
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import Need
from jackfield.hookspecs.kinds import KINDS
from jackfield.stack.digest import stack_hash
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.facts import gather_model_facts
from jackfield.stack.selection.resolution import Resolution, resolve
from tests.unit.stack.catalogues import CPU, catalogue, facts, names, reason, refused, resolved, row
from tests.unit.stack.distributions import Site, plugin_row

LOUD: dict[str, Any] = {"distribution": "acme", "priority": 1000}


def stack_of_this_machine() -> Resolution:
    args = ServerArgs(worker="torch", device="cpu")
    found = discover()
    facts = gather_model_facts(args, None, found, isolate=False)
    return resolve(args, describe_device("cpu"), facts, found)


@pytest.mark.goal_row(4)
def test_installing_a_stranger_of_highest_priority_in_every_kind_changes_neither_stack_nor_hash(
    live_site: Site,
) -> None:
    before = stack_of_this_machine()
    # Each would serve here, if it were asked: it claims all that ours claim.
    more: dict[str, dict[str, Any]] = {
        "attention": {"features": ["window", "batch_invariant"]},
        "model": {"architectures": ["LlamaForCausalLM"]},
        "loader": {"files": ["*.gguf"]},
        "cache": {"features": ["cached_tokens", "forest"]},
        "parser": {"features": ["tool_calls"], "templates": ["<|im_start|>"]},
    }
    rows = [plugin_row(kind, f"loud-{kind.replace('_', '-')}", priority=1000, **more.get(kind, {})) for kind in KINDS]
    live_site.add("acme-everything", *rows)
    after = stack_of_this_machine()
    installed = {row.kind for row in discover() if row.distribution == "acme-everything" and not row.problem}
    assert installed == set(KINDS)
    assert after.stack.plugins == before.stack.plugins
    assert stack_hash(after.stack) == stack_hash(before.stack)
    for kind in ("attention", "cache", "model", "schedule_policy"):
        assert "--plugin-allow acme-everything or name" in reason(after, kind, f"loud-{kind.replace('_', '-')}")


@pytest.mark.parametrize("entry", ["acme", "Acme", "cache.loud", "cache.Loud"])
def test_either_form_allows(entry: str) -> None:
    rows = catalogue(row("cache", "loud", **LOUD), row("ops", "loud", **LOUD))
    chosen = names(resolved(rows, plugin_allow=(entry,)))
    assert chosen["cache"] == "loud"
    assert chosen["ops"] == ("torch" if "." in entry else "loud")


@pytest.mark.parametrize("entry", ["acme", "cache.loud"])
def test_a_denial_goes_before_a_permission_and_gives_its_reason(entry: str) -> None:
    rows = catalogue(row("cache", "loud", **LOUD))
    resolution = resolved(rows, plugin_allow=("acme", "cache.loud"), plugin_deny=(entry,))
    assert names(resolution)["cache"] == "radix"
    assert reason(resolution, "cache", "loud") == f"--plugin-deny {entry} denies it"


def test_one_of_our_own_may_be_denied() -> None:
    resolution = resolved(plugin_deny=("cache.radix",))
    assert names(resolution)["cache"] == "chunk"
    assert reason(resolution, "cache", "radix") == "--plugin-deny cache.radix denies it"
    message = refused(plugin_deny=("jackfield-ops-torch",))
    assert "--plugin-deny jackfield-ops-torch denies it\nTake a denial back, or name another with --ops" in message


@pytest.mark.parametrize(
    ("named", "deny"),
    [
        ({"cache_policy": "loud"}, "acme"),
        ({"cache_policy": "loud"}, "cache.loud"),
        ({"metrics": ["prometheus"]}, "metrics.prometheus"),
        ({"prefill_attention_backend": "torch"}, "attention.torch"),
    ],
)
def test_a_plugin_that_is_named_and_denied_is_refused(named: dict[str, Any], deny: str) -> None:
    args = ServerArgs.model_validate(named)
    values = {name: getattr(args, name) for name in named}
    message = refused(catalogue(row("cache", "loud", **LOUD)), plugin_deny=(deny,), **values)
    assert f"cannot serve: --plugin-deny {deny} denies it. Name another, or take that back" in message
    assert message.startswith("--")


def test_messages_say_where_a_denial_came_from() -> None:
    message = refused(
        cache_policy="radix", plugin_deny=("cache.radix",), provenance={"plugin_deny": "stack file s.toml"}
    )
    assert "--plugin-deny (from stack file s.toml) cache.radix denies it" in message


@pytest.mark.goal_row(6)
@pytest.mark.parametrize("field", ["plugin_allow", "plugin_deny"])
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("acmee", "no distribution with plugins 'acmee' is installed; did you mean 'acme'?"),
        ("cache.lood", "no plugin 'cache.lood' is installed; did you mean 'cache.loud'"),
        ("cahe.loud", "is installed; did you mean"),
        ("loud", "'loud' is no distribution; one plugin is written cache.loud"),
    ],
)
def test_a_misspelt_entry_is_refused_with_what_is_there(field: str, entry: str, said: str) -> None:
    message = refused(catalogue(row("cache", "loud", **LOUD)), **{field: (entry,)})
    assert message.startswith("--" + field.replace("_", "-"))
    assert said in message


def test_all_misspelt_entries_are_told_at_once() -> None:
    message = refused(plugin_allow=("acmee", "other"), plugin_deny=("third",))
    assert "3 problems" in message


@pytest.mark.goal_row(7)
def test_a_denial_decides_a_conflict(live_site: Site) -> None:
    """Without uninstalling anything: two distributions offer one name, and the operator says whose it is."""
    live_site.add("acme-one", plugin_row("cache", "twin"), version="1.5")
    live_site.add("acme-two", plugin_row("cache", "twin"))
    rows = catalogue(*(r for r in discover() if r.name == "twin"))
    conflict = refused(rows, cache_policy="twin")
    assert (
        "acme-one 1.5 and acme-two 1.0 both offer cache 'twin': uninstall one, or deny one with --plugin-deny"
        in conflict
    )
    for denied, left in (("acme-one", "acme-two"), ("acme-two", "acme-one")):
        (cache,) = resolved(rows, cache_policy="twin", plugin_deny=(denied,)).stack.of("cache")
        assert cache.distribution == left
    # An entry that means both leaves none, and one that means neither leaves the conflict.
    assert "--plugin-deny cache.twin denies it" in refused(rows, cache_policy="twin", plugin_deny=("cache.twin",))
    assert "both offer cache 'twin'" in refused(rows, cache_policy="twin", plugin_deny=("cache.chunk",))


def test_a_conflict_over_one_of_ours_is_decided_for_automatic_selection_too(live_site: Site) -> None:
    live_site.add("acme-one", plugin_row("schedule_policy", "fcfs"))
    args = ServerArgs(worker="simulated", plugin_deny=("acme-one",))
    facts = gather_model_facts(args, None, discover(), isolate=False)
    stack = resolve(args, describe_device("cpu"), facts, discover()).stack
    assert [p.distribution for p in stack.of("schedule_policy")] == ["jackfield-scheduler-policies"]


def test_a_probe_of_a_stranger_runs_only_if_it_may_serve() -> None:
    """Neither for the reason why it does not, nor because another plugin was named."""
    rows = catalogue(
        row("attention", "loud", probe="acme.probe:check", **LOUD),
        row("attention", "far", probe="acme.probe:check", devices=("cuda",), **LOUD),
        row("ops", "loud", probe="acme.probe:check", **LOUD),
    )

    def asked(**args: Any) -> set[str]:
        found = set[str]()

        def prober(plugin: PluginRow, need: Need, device: DeviceDescription) -> list[str]:
            if plugin.distribution == "acme":
                found.add(f"{plugin.kind}.{plugin.name}")
            return []

        resolve(ServerArgs(**args), CPU, facts(), rows, prober=prober)
        return found

    assert asked() == asked(attention_backend="torch", ops="torch") == set()
    assert asked(decode_attention_backend="loud") == {"attention.loud"}
    assert asked(ops="loud") == {"ops.loud"}
    assert asked(plugin_allow=("acme",)) == {"attention.loud", "attention.far", "ops.loud"}
