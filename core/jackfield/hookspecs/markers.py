"""The two pluggy markers. A plugin decorates its hooks with `hookimpl`; the core declares them with `hookspec`."""

from __future__ import annotations

import pluggy

PROJECT = "jackfield"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
