"""Our own distributions, the ones that auto-selection may choose without `--plugin-allow`.

A written list, because a rule over names or versions is one that a stranger's package can meet by accident. A packaging
test holds it against the folders `plugins/<group>/<dist>`.
"""

from __future__ import annotations

OWN_DISTRIBUTIONS: tuple[str, ...] = (
    "jackfield-attention-flashinfer",
    "jackfield-attention-torch",
    "jackfield-attention-triton",
    "jackfield-cache-prefix",
    "jackfield-cache-tiers",
    "jackfield-grammar-llguidance",
    "jackfield-grammar-xgrammar",
    "jackfield-models-encoder",
    "jackfield-models-gemma",
    "jackfield-models-llama",
    "jackfield-models-loaders",
    "jackfield-models-qwen",
    "jackfield-observability-jsonl",
    "jackfield-observability-prometheus",
    "jackfield-ops-cpu",
    "jackfield-ops-flashinfer",
    "jackfield-ops-torch",
    "jackfield-ops-triton",
    "jackfield-parser-reasoning",
    "jackfield-parser-tools",
    "jackfield-routes-anthropic",
    "jackfield-routes-ollama",
    "jackfield-routes-playground",
    "jackfield-sampling-processors",
    "jackfield-scheduler-loops",
    "jackfield-scheduler-policies",
    "jackfield-worker-simulated",
    "jackfield-worker-torch",
)
