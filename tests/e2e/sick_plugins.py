"""Plugins that fail at everything that they are asked, each in a way of its own; a healthy observer and sink beside them."""

from __future__ import annotations

from tests.unit.stack.distributions import Site, plugin_row

SOURCE = '''
"""Every survivable fault at once."""
import json, os
from pathlib import Path

from jackfield.hookspecs import Gate, GateAnswer, KVTier, MetricsSink, SchedulePolicy, TierRule, TierUse, hookimpl

FOLDER = Path(os.environ["SICK"])


class Policy(SchedulePolicy):
    def order(self, waiting, view):
        raise SystemExit("the policy leaves")

    def budget(self, view):
        return "as much as you like"


class Leaver:
    """sys.exit() in a hook must not end the process, nor keep those behind it from hearing."""

    @hookimpl
    def jackfield_batch_committed(self, record):
        raise SystemExit(3)

    @hookimpl
    def jackfield_requests_finished(self, requests):
        raise OSError("no space left")


class Quiet:
    def __init__(self, context):
        self.file = FOLDER / f"heard-{context.process.role}"

    def note(self, what):
        with self.file.open("a") as file:
            file.write(what + "\\\\n")

    @hookimpl
    def jackfield_batch_committed(self, record):
        self.note(f"step {record.step}")

    @hookimpl
    def jackfield_requests_finished(self, requests):
        for request in requests:
            self.note("request")


class Sick(MetricsSink):
    def declare(self, metrics):
        pass

    def record(self, samples):
        raise SystemExit("the sink leaves")

    def expose(self, scrape):
        raise ValueError("nothing to show")

    def close(self):
        raise RuntimeError("it does not even close")


class Names(MetricsSink):
    def __init__(self):
        self.names = set()

    def declare(self, metrics):
        pass

    def record(self, samples):
        self.names |= {sample.name for sample in samples}

    def close(self):
        (FOLDER / "names").write_text(json.dumps(sorted(self.names)))


class Closed(Gate):
    def enter(self, request):
        if request.key.tokens[0] == 13:
            raise SystemExit("the gate leaves")
        return GateAnswer.OPEN

    def poll(self):
        return []

    def cancel(self, uid):
        pass

    def close(self):
        raise RuntimeError("it cannot close")


class Torn(KVTier):
    rule = TierRule(write="through", min_load_tokens=1)

    def has(self, key):
        raise SystemExit("the tier leaves")

    def get(self, key):
        raise OSError("torn")

    def put(self, key, block):
        raise OSError("torn")

    def clear(self):
        raise OSError("torn")

    def use(self):
        raise OSError("torn")


@hookimpl
def {hook}(context):
    return {made}
'''

PLUGINS = {
    ("schedule_policy", "lost"): ("jackfield_schedule_policy", "Policy()"),
    ("observer", "leaver"): ("jackfield_observer", "Leaver()"),
    ("observer", "quiet"): ("jackfield_observer", "Quiet(context)"),
    ("metrics", "sick"): ("jackfield_metrics_sink", "Sick()"),
    ("metrics", "names"): ("jackfield_metrics_sink", "Names()"),
    ("gate", "closed"): ("jackfield_gate", "Closed()"),
    ("kv_tier", "torn"): ("jackfield_kv_tier", "Torn()"),
}


def install(site: Site) -> None:
    for (kind, name), (hook, made) in PLUGINS.items():
        source = SOURCE.replace("{hook}", hook).replace("{made}", made).replace("\\\\n", "\\n")
        site.add(f"acme-{kind.replace('_', '-')}-{name}", plugin_row(kind, name), sources={name: source})


STACK = {
    "schedule_policy": "lost",
    "observer": ["leaver", "quiet"],
    "metrics": ["sick", "names"],
    "gate": ["closed"],
    "kv_tier": ["torn"],
}
