"""What a client may say of a request's place in the queue: from the values that were sent to checked ones, or one clear
refusal. What a policy makes of them is the policy's affair; without one that looks at them they change nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jackfield.managers.errors import RequestError
from jackfield.managers.fields.checks import for_each, real, refused, whole
from jackfield.managers.fields.limits import DEFAULT_LIMITS, RequestLimits
from jackfield.managers.text.tokenizer import check_unicode


@dataclass(frozen=True, kw_only=True)
class SchedulingFields:
    """priority   higher is more urgent, int32
    tenant        on whose account it runs; None: on nobody's
    deadline      seconds from its arrival in the scheduler; None: none. It orders; it ends nothing
    """

    priority: int = 0
    tenant: str | None = None
    deadline: float | None = None


def scheduling_fields(
    priority: Any, tenant: Any, deadline_s: Any, count: int, limits: RequestLimits = DEFAULT_LIMITS
) -> list[SchedulingFields]:
    """The fields of each of `count` prompts. Each argument is one value for all of them, or a list with one for each; None,
    alone or in a list, is absent. Raises RequestError naming the field."""
    priorities, tenants, deadlines = (
        for_each(name, given, count)
        for name, given in (("priority", priority), ("tenant", tenant), ("deadline_s", deadline_s))
    )
    return [
        SchedulingFields(
            priority=_priority(urgency), tenant=_tenant(name, limits.max_tenant_length), deadline=_deadline(seconds)
        )
        for urgency, name, seconds in zip(priorities, tenants, deadlines, strict=True)
    ]


def _priority(value: Any) -> int:
    return 0 if value is None else whole("priority", value, -(2**31), 2**31 - 1)


def _tenant(value: Any, most: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise refused("tenant", "a text", value)
    if not 1 <= len(value) <= most:
        raise RequestError(f"tenant has 1 to {most} characters, not {len(value)} (--max-tenant-length)", param="tenant")
    check_unicode(value, "tenant")
    return value


def _deadline(value: Any) -> float | None:
    if value is None:
        return None
    want = "a number of seconds above 0"
    seconds = real("deadline_s", value, want)
    if seconds <= 0:
        raise refused("deadline_s", want, value)
    return seconds
