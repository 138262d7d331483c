"""The whole plugin over a stand-in that computes from what FlashInfer would be handed.

What it shows: the pages, lengths, masks, scales and options of every call are right, and no call is one that FlashInfer's
kernels would compute wrongly, as far as their sources say. That the kernels themselves are right takes a GPU to show.
"""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import AttentionConformance


@pytest.mark.usefixtures("standin")
class TestConformance(AttentionConformance):
    plugin = "flashinfer"
    options = {"workspace_mib": 1}  # noqa: RUF012

    def here(self) -> str:
        """On CPU tensors, which the stand-in takes; the manifest's devices are FlashInfer's."""
        return "cpu"
