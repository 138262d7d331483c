"""Everything that a plugin or its operator can get wrong before a run, each with its whole message, so that a reader sees them
all. What goes wrong in a run has a stated policy instead: see `tests/e2e/test_fault_scopes.py`, and for what only one process
can import `tests/e2e/test_processes_failing.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jackfield import __version__
from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import server_args_from_kwargs
from jackfield.hookspecs import KINDS, ProcessInfo
from jackfield.stack.discovery.catalogue import Catalogue
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.load import load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.observers import ObserverHub
from jackfield.stack.selection.resolution import resolve
from tests.unit.stack.catalogues import CPU, facts, standard
from tests.unit.stack.distributions import POLICY, Site, plugin_row

PROCESS = ProcessInfo(role="inline", pid=1, stack_hash="0" * 64)
HERE = "schedule_policy plugin 'mine' (acme 1.0)"
UNUSABLE = f"--schedule-policy (from argument schedule_policy): {HERE} cannot be used: "
BREAKS = f"{HERE} breaks the contract (PACKAGE.mine): "
DEAF = BREAKS.replace("schedule_policy", "observer")
SPEAKS = KINDS["schedule_policy"].contract_version
MAJOR, MINOR = KINDS["schedule_policy"].contract
OPTIONS = "from pydantic import BaseModel\nclass Options(BaseModel):\n    depth: int = 3\n"
WITH_OPTIONS: dict[str, Any] = {"options": "PACKAGE.options:Options"}


def policy(source: str = POLICY, kind: str = "schedule_policy", **row: Any) -> Callable[[Site], None]:
    """Installs acme 1.0 with the one plugin `mine`."""

    def install(site: Site) -> None:
        package = site.add("acme", plugin_row(kind, "mine", **row), sources={"mine": source, "options": OPTIONS})
        manifest = site.folder / package / "plugin.toml"
        manifest.write_text(manifest.read_text().replace("PACKAGE", package))

    return install


def hook(text: str, before: str = "") -> Callable[[Site], None]:
    """A module whose one hook is written so."""
    return policy(f"from jackfield.hookspecs import hookimpl\n{before}\n{text}\n")


def observer(text: str) -> Callable[[Site], None]:
    source = (
        "from jackfield.hookspecs import hookimpl\nclass Watch:\n" + text + "\n"
        "@hookimpl\ndef jackfield_observer(context):\n    return Watch()\n"
    )
    return policy(source, "observer")


def twice(site: Site) -> None:
    for name in ("acme-a", "acme-b"):
        site.add(name, plugin_row("schedule_policy", "mine"), sources={"mine": POLICY})


def bare(site: Site) -> None:
    site.add("acme", plugin_row("schedule_policy", "mine"), manifest="")


MINE: dict[str, Any] = {"schedule_policy": "mine"}
WATCH: dict[str, Any] = {"observer": ["mine"]}

CASES: dict[str, tuple[Callable[[Site], None], dict[str, Any], str]] = {
    # What an operator writes.
    "a misspelt plugin": (
        policy(),
        {"schedule_policy": "mien"},
        "--schedule-policy (from argument schedule_policy): no schedule_policy plugin 'mien' is installed; did you "
        "mean 'mine'?",
    ),
    "a misspelt sink": (
        policy(POLICY, "metrics"),
        {"metrics": ["mien"]},
        "--metrics (from argument metrics): no metrics plugin 'mien' is installed; did you mean 'mine'?",
    ),
    "a misspelt kind": (
        policy(),
        {"options": {"schedul_policy.mine": {"depth": 1}}},
        "argument options: 'schedul_policy.mine': there is no kind 'schedul_policy'; did you mean 'schedule_policy'?",
    ),
    "a misspelt field": (
        policy(),
        {"schedule_polcy": "mine"},
        "there is no argument 'schedule_polcy'; did you mean 'schedule_policy'?",
    ),
    "a misspelt instance": (
        policy(**WITH_OPTIONS),
        MINE | {"options": {"schedule_policy.mien": {"depth": 1}}},
        'options."schedule_policy.mien" (from argument options): there is no such instance in this stack; did '
        "you mean 'schedule_policy.mine'?",
    ),
    "a misspelt option": (
        policy(**WITH_OPTIONS),
        MINE | {"options": {"schedule_policy.mine": {"dept": 1}}},
        f'{HERE} refuses its options: options."schedule_policy.mine".dept (from argument options): unknown option; did '
        "you mean 'depth'?",
    ),
    "an option of another type": (
        policy(**WITH_OPTIONS),
        MINE | {"options": {"schedule_policy.mine": {"depth": "deep"}}},
        f'{HERE} refuses its options: options."schedule_policy.mine".depth (from argument options): must be a whole number, not '
        "'deep'",
    ),
    "an option of a plugin without": (
        policy(),
        MINE | {"options": {"schedule_policy.mine": {"depth": 1}}},
        f'{HERE} has no options, but options."schedule_policy.mine".depth (from argument options) is set: remove it',
    ),
    # What is installed.
    "two distributions of one name": (
        twice,
        MINE,
        "--schedule-policy (from argument schedule_policy): schedule_policy plugin 'mine' (acme-a 1.0) cannot be "
        "used: acme-a 1.0 and acme-b 1.0 both offer schedule_policy 'mine': uninstall one, or deny one with --plugin-deny",
    ),
    "a contract that is too old": (
        policy(contract={"schedule_policy": "0.0"}),
        MINE,
        f"{UNUSABLE}it was written for the schedule_policy contract 0.0, this core speaks {SPEAKS}: upgrade the plugin",
    ),
    "a contract that is too new": (
        policy(contract={"schedule_policy": f"{MAJOR}.{MINOR + 1}"}),
        MINE,
        f"{UNUSABLE}it was written for the schedule_policy contract {MAJOR}.{MINOR + 1}, this core speaks {SPEAKS}: "
        "upgrade jackfield",
    ),
    "a contract that is no version": (
        policy(contract={"schedule_policy": "new"}),
        MINE,
        f"{UNUSABLE}its schedule_policy contract 'new' is not of the form \"major.minor\"; this core speaks {SPEAKS}",
    ),
    "a contract of another kind": (
        policy(contract={"cache": "0.1"}),
        MINE,
        f"{UNUSABLE}its manifest names no contract version for 'schedule_policy': write contract = {{ "
        f'schedule_policy = "{SPEAKS}" }}',
    ),
    "a range of cores without this one": (
        policy(core=">=7,<8"),
        MINE,
        f"{UNUSABLE}it asks for jackfield >=7,<8 (`core` in its manifest), this is jackfield {__version__}: install a jackfield "
        "in that range, or another version of the plugin",
    ),
    "a range of cores that is none": (
        policy(core="7 or so"),
        MINE,
        f"{UNUSABLE}manifest key 'core' must be a range of versions as in dependencies, such as \">=0.1,<0.3\", not '7 or so'",
    ),
    "an unknown key": (
        policy(prioritty=1),
        MINE,
        f"{UNUSABLE}unknown manifest key 'prioritty'; did you mean 'priority'?",
    ),
    "no manifest": (
        bare,
        MINE,
        f"{UNUSABLE}its package PACKAGE has no plugin.toml",
    ),
    # What a module does.
    "an exception at import": (
        policy("1 / 0"),
        MINE,
        f"{HERE} cannot be imported: PACKAGE.mine raised ZeroDivisionError: division by zero",
    ),
    "an exit at import": (
        policy("raise SystemExit(3)"),
        MINE,
        f"{HERE} cannot be imported: PACKAGE.mine raised SystemExit: 3",
    ),
    "a missing import": (
        policy("import acme_missing"),
        MINE,
        f"{HERE} cannot be imported: PACKAGE.mine raised ModuleNotFoundError: No module named 'acme_missing'. "
        "Install what provides 'acme_missing', or choose another plugin",
    ),
    "an exception at creation": (
        hook("@hookimpl\ndef jackfield_schedule_policy(context):\n    return {}['key']"),
        MINE,
        f"{HERE} could not be made: jackfield_schedule_policy raised KeyError: 'key'",
    ),
    "another type": (
        hook("@hookimpl\ndef jackfield_schedule_policy(context):\n    return 3"),
        MINE,
        f"{HERE}: jackfield_schedule_policy returned int, not a jackfield.hookspecs.schedule_policy.SchedulePolicy",
    ),
    "nothing": (
        hook("@hookimpl\ndef jackfield_schedule_policy(context): ..."),
        MINE,
        f"{HERE}: jackfield_schedule_policy returned NoneType, not a "
        "jackfield.hookspecs.schedule_policy.SchedulePolicy",
    ),
    # How a hook is written.
    "no hook": (
        hook(""),
        MINE,
        f"{BREAKS}the module registers no hook of kind 'schedule_policy': decorate jackfield_schedule_policy with "
        "@hookimpl, which comes from jackfield.hookspecs",
    ),
    "an undecorated hook": (
        hook("def jackfield_schedule_policy(context): ..."),
        MINE,
        f"{BREAKS}jackfield_schedule_policy is not decorated with @hookimpl, so it would never be called",
    ),
    "another project's marker": (
        hook(
            "@other\ndef jackfield_schedule_policy(context): ...",
            "import pluggy\nother = pluggy.HookimplMarker('jack-field')",
        ),
        MINE,
        f"{BREAKS}jackfield_schedule_policy is marked for the pluggy project 'jack-field' and would never be "
        "called: decorate it with @hookimpl, which comes from jackfield.hookspecs",
    ),
    "an unknown hook": (
        hook("@hookimpl\ndef jackfield_schedule_polcy(context): ..."),
        MINE,
        f"{BREAKS}there is no hook 'jackfield_schedule_polcy'; did you mean 'jackfield_schedule_policy'?",
    ),
    "a hook of another kind": (
        hook("@hookimpl\ndef jackfield_prefix_cache(context): ..."),
        MINE,
        f"{BREAKS}jackfield_prefix_cache is a hook of kind 'cache'; a module of kind 'schedule_policy' cannot hold "
        "it: move it to a module of its own with an entry point in jackfield.cache",
    ),
    "an unknown argument": (
        hook("@hookimpl\ndef jackfield_schedule_policy(contxt): ..."),
        MINE,
        f"{BREAKS}jackfield_schedule_policy has the unknown argument 'contxt'; did you mean 'context'?",
    ),
    "a default": (
        hook("@hookimpl\ndef jackfield_schedule_policy(context=None): ..."),
        MINE,
        f"{BREAKS}jackfield_schedule_policy gives 'context' a default; the core always passes it: leave the default "
        "out",
    ),
    "keyword arguments": (
        hook("@hookimpl\ndef jackfield_schedule_policy(**given): ..."),
        MINE,
        f"{BREAKS}jackfield_schedule_policy must name its arguments one by one (context), not **given",
    ),
    "positional arguments": (
        hook("@hookimpl\ndef jackfield_schedule_policy(*given): ..."),
        MINE,
        f"{BREAKS}jackfield_schedule_policy must name its arguments one by one (context), not *given",
    ),
    "an async hook": (
        hook("@hookimpl\nasync def jackfield_schedule_policy(context): ..."),
        MINE,
        f"{BREAKS}jackfield_schedule_policy is async; hooks are called synchronously: make it a plain function",
    ),
    "an async generator": (
        hook("@hookimpl\nasync def jackfield_schedule_policy(context): yield"),
        MINE,
        f"{BREAKS}jackfield_schedule_policy is async; hooks are called synchronously: make it a plain function",
    ),
    "a generator": (
        hook("@hookimpl\ndef jackfield_schedule_policy(context): yield"),
        MINE,
        f"{BREAKS}jackfield_schedule_policy is a generator, so its body would never run: return the value instead "
        "of yielding it",
    ),
    "a wrapper": (
        hook("@hookimpl(wrapper=True)\ndef jackfield_schedule_policy(context): yield"),
        MINE,
        f"{BREAKS}jackfield_schedule_policy is a wrapper; a plugin cannot wrap the hooks of others",
    ),
    "an old wrapper": (
        hook("@hookimpl(hookwrapper=True)\ndef jackfield_schedule_policy(context): yield"),
        MINE,
        f"{BREAKS}jackfield_schedule_policy is a wrapper; a plugin cannot wrap the hooks of others",
    ),
    "an order": (
        hook("@hookimpl(tryfirst=True)\ndef jackfield_schedule_policy(context): ..."),
        MINE,
        f"{BREAKS}jackfield_schedule_policy asks for an order with tryfirst or trylast; the order is that of the stack",
    ),
    # How an observer is written.
    "a deaf observer": (
        observer("    pass"),
        WATCH,
        f"{DEAF}a Watch hears nothing: decorate a method such as jackfield_process_started with @hookimpl, which "
        "comes from jackfield.hookspecs",
    ),
    "an unknown lifecycle hook": (
        observer("    @hookimpl\n    def jackfield_batch_schduled(self, batch): ..."),
        WATCH,
        f"{DEAF}there is no lifecycle hook 'jackfield_batch_schduled'; did you mean 'jackfield_batch_scheduled'?",
    ),
    "an async lifecycle hook": (
        observer("    @hookimpl\n    async def jackfield_batch_scheduled(self, batch): ..."),
        WATCH,
        f"{DEAF}jackfield_batch_scheduled is async; hooks are called synchronously: make it a plain function",
    ),
    "an unknown lifecycle argument": (
        observer("    @hookimpl\n    def jackfield_batch_scheduled(self, step): ..."),
        WATCH,
        f"{DEAF}jackfield_batch_scheduled has the unknown argument 'step'; valid: batch",
    ),
    "a lifecycle hook of the module": (
        policy(
            "from jackfield.hookspecs import hookimpl\n@hookimpl\ndef jackfield_batch_scheduled(batch): ...", "observer"
        ),
        WATCH,
        f"{DEAF}jackfield_batch_scheduled is a method of the object that jackfield_observer returns, not a function "
        "of the module",
    ),
}
"""What is wrong -> how it is installed, the arguments of the run, the message. PACKAGE stands for the import package."""


def start(site: Site, arguments: dict[str, Any]) -> None:
    """What a start does with the plugins of the site, up to the first that does not stand up."""
    installed = discover([str(site.folder)])
    catalogue = Catalogue((*standard(), *installed.all_rows))
    args, provenance = server_args_from_kwargs({"worker": "simulated", "load_format": "gguf"} | arguments, {})
    resolution = resolve(args, CPU, facts(), catalogue, provenance)
    mine = tuple(plugin for plugin in resolution.stack.plugins if plugin.distribution.startswith("acme"))
    loaded = load_stack(ResolvedStack(plugins=mine), "inline")
    if loaded.has("schedule_policy"):
        loaded.make("schedule_policy", max_running=4, page_size=1, total_slots=64)
    ObserverHub(loaded, FaultLedger(), PROCESS)


@pytest.mark.goal_row(6)
@pytest.mark.goal_row(7)
@pytest.mark.goal_row(8)
@pytest.mark.goal_row(9)
@pytest.mark.parametrize("case", CASES)
def test_each_mistake_has_one_message(live_site: Site, case: str) -> None:
    install, arguments, message = CASES[case]
    install(live_site)
    with pytest.raises(ConfigurationError) as caught:
        start(live_site, arguments)
    packages = [folder.name for folder in live_site.folder.iterdir() if (folder / "__init__.py").is_file()]
    told = str(caught.value)
    for package in packages:
        told = told.replace(package, "PACKAGE")
    assert told == message


def test_a_torn_file_of_somebody_else_keeps_nobody_from_running(live_site: Site) -> None:
    policy()(live_site)
    live_site.info("torn", "0.7", "[jackfield.schedule_policy\nmine = a.b\n")
    start(live_site, MINE)
    (row,) = [row for row in discover([str(live_site.folder)]) if row.distribution == "torn"]
    assert row.problem.startswith("its entry_points.txt cannot be read: File contains no section headers.")


def test_the_named_provider_is_called_and_no_other(live_site: Site) -> None:
    """pluggy would call all that registered, or take the first answer of the last that did."""
    other = "from jackfield.hookspecs import hookimpl\n@hookimpl\ndef jackfield_schedule_policy(context):\n    1 / 0\n"
    rows = [plugin_row("schedule_policy", name) for name in ("mine", "other")]
    live_site.add("acme", *rows, sources={"mine": POLICY, "other": other})
    start(live_site, MINE)
    with pytest.raises(ConfigurationError, match=r"'other' .* could not be made: .* ZeroDivisionError"):
        start(live_site, {"schedule_policy": "other"})
