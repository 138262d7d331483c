"""Signals between the processes of a replica. Imports nothing of the runtime: a child reads this first."""

from __future__ import annotations

import signal

ORPHANED = signal.SIGUSR2
"""The system's notice to a detokenizer that its parent has gone."""
