from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from jackfield.config.device import DeviceDescription
from jackfield.hookspecs import Need
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.probes import Prober, probe_here, probe_in_child
from tests.unit.stack.catalogues import row
from tests.unit.stack.distributions import Site, fresh_package, plugin_row

PROBE = """
print("noise")
from jackfield.hookspecs import Problem


def check(need, device):
    problems = []
    if 80 in need.head_sizes:
        problems.append(Problem(text=f"no head size of 80 on {device.type} {device.capability}", hint="use 64"))
    if "window" in need.features and need.layout == "nhd-paged":
        problems.append(Problem(text="no window in nhd-paged"))
    return problems


def crash(need, device):
    raise ZeroDivisionError("odd")


def texts(need, device):
    return ["odd"]
"""

DEVICE = DeviceDescription(type="cuda", name="test", available_memory=1, total_memory=1, cores=1, capability=(9, 0))

ask = pytest.mark.parametrize("ask", [probe_here, probe_in_child])


@pytest.fixture
def probed(live_site: Site) -> Callable[[str], PluginRow]:
    def install(function: str) -> PluginRow:
        package = fresh_package("acme_probe")
        live_site.add(
            "acme-probe",
            plugin_row("attention", "acme-probed", probe=f"{package}.probe:{function}"),
            package=package,
            sources={"probe": PROBE},
        )
        (found,) = discover().find("attention", "acme-probed")
        return found

    return install


@ask
def test_a_probe_is_told_need_and_device(probed: Callable[[str], PluginRow], ask: Prober) -> None:
    plugin = probed("check")
    need = Need(device="cuda", head_sizes=(64, 80), layout="nhd-paged", features=frozenset({"window"}))
    assert ask(plugin, need, DEVICE) == ["no head size of 80 on cuda (9, 0) (use 64)", "no window in nhd-paged"]
    assert ask(plugin, Need(device="cuda", head_sizes=(64,)), DEVICE) == []


@ask
@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("crash", "failed: ZeroDivisionError: odd"),
        ("absent", "failed: AttributeError"),
        ("texts", "must return a list of Problem, not of str"),
    ],
)
def test_a_broken_probe_is_a_problem_of_its_plugin(
    probed: Callable[[str], PluginRow], ask: Prober, function: str, text: str
) -> None:
    (problem,) = ask(probed(function), Need(device="cuda"), DEVICE)
    assert text in problem


@ask
def test_no_probe_no_problem(ask: Prober) -> None:
    assert ask(row("attention", "torch"), Need(device="cpu"), DEVICE) == []


def test_a_child_leaves_nothing_imported_here(probed: Callable[[str], PluginRow]) -> None:
    plugin = probed("check")
    probe_in_child(plugin, Need(device="cuda"), DEVICE)
    assert plugin.package not in sys.modules
