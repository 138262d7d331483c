"""What this plugin calls of FlashInfer, and how its calls are recorded: `python -m plugins.attention.flashinfer.tests.api` writes
the file anew from the FlashInfer that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jackfield.testing.recorded_signatures import signatures_to_json

RECORDED = Path(__file__).parent / "flashinfer-0.7.4.json"
VERSION = "0.7.4"


def functions() -> Mapping[str, Callable[..., Any]]:
    """Of the installed FlashInfer. ImportError without one."""
    import flashinfer

    decode, prefill = flashinfer.BatchDecodeWithPagedKVCacheWrapper, flashinfer.BatchPrefillWithPagedKVCacheWrapper
    return {
        "append_paged_kv_cache": flashinfer.append_paged_kv_cache,
        "decode.__init__": decode.__init__,
        # `plan` itself takes any keyword and hands it on to this one
        "decode.plan": decode._plan_impl,
        "decode.reset_workspace_buffer": decode.reset_workspace_buffer,
        "decode.run": decode.run,
        "decode.workspace_size": decode.workspace_size,
        "prefill.__init__": prefill.__init__,
        "prefill.plan": prefill.plan,
        "prefill.run": prefill.run,
    }


if __name__ == "__main__":
    RECORDED.write_text(signatures_to_json(functions()))
