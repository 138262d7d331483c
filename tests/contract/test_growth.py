"""What the frozen contracts are expected to gain (docs/versioning.md, "What a minor version may bring") can come in minors.

The forms are not decided by this: it shows that one exists for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.contract.changes import changes
from tests.contract.facts import facts_of

MODEL, ATTENTION = "model", "attention"
GROWTH: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "experts": (
        MODEL,
        {"Builder.experts": "function (name: str, *, count: int, top_k: int, hidden_size: int) -> Experts"},
    ),
    "adapters": (MODEL, {"ForwardContext.adapters": "property torch.Tensor | None"}),
    "attention without a cache": (
        ATTENTION,
        {"AttentionMode.ENCODE": "member 'encode'", "AttentionLayer.cached": "field bool = True"},
    ),
    "KV with scales": (
        ATTENTION,
        {
            "KVTensors.scales": "field Mapping[str, tuple[torch.Tensor, ...]] = dict()",
            "Need.kv_dtype": "field str | None = None",
        },
    ),
    "shared prefixes": (ATTENTION, {"AttentionBatch.shared_prefix": "field SharedPrefix | None = None"}),
    "the log-sum-exp": (
        ATTENTION,
        {
            "AttentionBackend.attend_lse": "method (plan: AttentionPlan, layer: AttentionLayer, q: torch.Tensor, "
            "k: torch.Tensor | None, v: torch.Tensor | None, out: torch.Tensor, lse: torch.Tensor) -> None"
        },
    ),
    "sinks": (ATTENTION, {"AttentionBackend.sinks": "method (layer: AttentionLayer, logits: torch.Tensor) -> None"}),
    "packed weights of several parts": (
        MODEL,
        {"Weight.config": "field Mapping[str, Any] = dict()", "LoadReport.repacked": "field int = 0"},
    ),
    "adapter slots and speculation in policies": (
        "schedule_policy",
        {
            "SchedulerView.adapter_slots": "field int | None = None",
            "StepBudget.draft_tokens": "field int | None = None",
            "RequestTable.accepted_tokens": "property NDArray[np.int32]",
            "SchedulePolicy.state": "method () -> object | None",
        },
    ),
    "waits for grammars": (
        "observer",
        {
            "WaitReason.GRAMMAR": "member 'grammar'",
            "RequestReceived.grammar": "field str | None = None",
            "jackfield_tokens_sent": "hook (tokens: Sequence[TokensSent]) -> None",
        },
    ),
    "exemplars": ("metrics", {"Sample.exemplar": "field str | None = None"}),
}


@pytest.mark.goal_row(17)
@pytest.mark.parametrize("what", GROWTH)
def test_what_is_expected_is_a_minor(what: str) -> None:
    kind, planned = GROWTH[what]
    now = facts_of(kind)
    later = dict(now)
    for subject, fact in planned.items():
        adds_an_argument = subject in now and not fact.startswith(("method", "function"))
        later[subject] = re.sub(r"\) ->", f", {fact}) ->", now[subject], count=1) if adds_an_argument else fact
    found = changes(now, later)
    assert {change.text.split(" ")[0] for change in found} == set(planned)
    assert [change.text for change in found if not change.additive] == []
