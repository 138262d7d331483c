"""Schedule policy `fcfs`: first come, first served. Everything else is the core's default."""

from __future__ import annotations

from jackfield.hookspecs import PolicyContext, RequestTable, SchedulePolicy, SchedulerView, hookimpl


class FirstComeFirstServed(SchedulePolicy):
    def order(self, waiting: RequestTable, view: SchedulerView) -> None:
        return None  # the rows stand in arrival order


@hookimpl
def jackfield_schedule_policy(context: PolicyContext) -> SchedulePolicy:
    return FirstComeFirstServed()
