"""Decode steps that are recorded once at start and replayed, by padded batch size."""

from __future__ import annotations

from jackfield.model_executor.graphs.decode_graphs import DecodeGraphs
from jackfield.model_executor.graphs.failures import GraphFailed, GraphMismatch
from jackfield.model_executor.graphs.start import start_graphs

__all__ = ("DecodeGraphs", "GraphFailed", "GraphMismatch", "start_graphs")
