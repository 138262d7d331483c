from __future__ import annotations

import msgspec

from jackfield.config.names import PluginUse
from jackfield.stack.report import stack_report, topology_report
from jackfield.stack.resolved import ResolvedStack
from tests.unit.stack.catalogues import catalogue, resolved, row


def test_a_stack_crosses_to_a_child_process_as_data() -> None:
    stack = resolved(
        catalogue(row("attention", "fast")),
        decode_attention_backend="fast",
        observer=(PluginUse(plugin="jsonl"),),
        options={"observer.jsonl": {"directory": "d"}},
    ).stack
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(stack), type=ResolvedStack) == stack


def test_one_plugin_by_kind_and_phase() -> None:
    stack = resolved(catalogue(row("attention", "fast")), decode_attention_backend="fast").stack
    names = [plugin and plugin.name for plugin in (stack.one("attention", "prefill"), stack.one("attention", "decode"))]
    assert names == ["torch", "fast"]
    assert stack.one("metrics") is None


def test_processes_come_from_the_kind_unless_the_manifest_says_otherwise() -> None:
    stack = resolved(catalogue(row("cache", "narrow", processes=("scheduler",)))).stack
    loader = stack.one("loader")
    assert loader is not None
    assert loader.processes == ("main", "scheduler", "detokenizer")


def test_reports_hold_the_fields_of_the_interface_sheet() -> None:
    resolution = resolved()
    report = stack_report(resolution.stack, stack_hash="h")
    assert {"hash", "epoch", "plugins", "rejected"} <= set(report)
    assert {"kind", "name", "instance", "distribution", "version", "options", "reason"} <= set(report["plugins"][0])
    assert set(report["rejected"][0]) == {"kind", "name", "reason", "origin"}
    assert {"mode", "processes", "ranks"} <= set(topology_report(resolution.topology))
