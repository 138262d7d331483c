"""The attention and ops plugins of the repository, found by their files and made by their hooks, without the stack.

So nothing is installed, and pydantic, msgspec and the like may be absent: a plugin gets no options, which means its defaults.
"""

from __future__ import annotations

import importlib
import inspect
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from jackfield.hookspecs import AttentionContext, DeviceDescription, Need, OpsContext

ROOT = Path(__file__).resolve().parents[2]
CONTEXTS: Mapping[str, Any] = {"attention": AttentionContext, "ops": OpsContext}
HOOKS = {"attention": "jackfield_attention_backend", "ops": "jackfield_ops"}


@dataclass(frozen=True)
class Provider:
    """One plugin. row: its table in plugin.toml."""

    kind: str
    name: str
    module: str
    row: Mapping[str, Any]

    @property
    def features(self) -> frozenset[str]:
        return frozenset(self.row.get("features", ()))

    @property
    def environment(self) -> dict[str, str]:
        """Under which its kernels run on a CPU; {} if they do not, or need nothing."""
        return dict(self.row.get("interpreter", {}).get("environment", {}))

    def dtypes(self, device: str) -> list[str]:
        """Those that it claims, and that its interpreter, if that is what runs here, computes rightly."""
        listed = self.row.get("dtypes", ["float32", "bfloat16", "float16"])
        right = self.row.get("interpreter", {}).get("dtypes", listed) if self.interpreted(device) else listed
        return [name for name in listed if name in right]

    def interpreted(self, device: str) -> bool:
        listed = self.row.get("devices", ())
        return bool(listed) and device not in listed and bool(self.environment)

    def absent(self, device: str, dtype: str = "bfloat16") -> str:
        """Why it cannot run here; "": it can."""
        listed = self.row.get("devices", ())
        if listed and device not in listed and not self.environment:
            return f"it runs on {', '.join(listed)}, and has no interpreter"
        if self.interpreted(device):
            dtype = self.dtypes(device)[0]
        problems = self.refusals(Need(device=device, dtype=dtype), describe(device))
        return "; ".join(map(str, problems))

    def refusals(self, need: Need, device: DeviceDescription) -> list[Any]:
        """What its probe says. A probe that fails is a reason too."""
        reference = self.row.get("probe")
        if reference is None:
            return []
        module, _, name = reference.partition(":")
        try:
            check = getattr(importlib.import_module(module), name)
            given = {"need": need, "device": device}
            return list(check(**{key: given[key] for key in inspect.signature(check).parameters}))
        except Exception as error:  # told as the reason
            return [f"its probe {reference} failed: {type(error).__name__}: {error}"]

    def make(self, fields: Mapping[str, Any]) -> Any:
        """Its object, by its hook."""
        hook = getattr(importlib.import_module(self.module), HOOKS[self.kind])
        return hook(context=CONTEXTS[self.kind](kind=self.kind, name=self.name, instance=self.name, **fields))


@cache
def providers() -> dict[str, Provider]:
    """ "kind.name" -> the plugin."""
    found = {}
    for project in sorted(ROOT.glob("plugins/*/*/pyproject.toml")):
        points = tomllib.loads(project.read_text())["project"].get("entry-points", {})
        for file in project.parent.glob("jackfield_*/plugin.toml"):
            for row in tomllib.loads(file.read_text()).get("plugin", ()):
                if row["kind"] in HOOKS:
                    module = points[f"jackfield.{row['kind']}"][row["name"]]
                    found[f"{row['kind']}.{row['name']}"] = Provider(row["kind"], row["name"], module, row)
    return found


def describe(device: str) -> DeviceDescription:
    cores = len(os.sched_getaffinity(0))
    if device == "cpu":
        return DeviceDescription(type="cpu", name="cpu", available_memory=0, total_memory=0, cores=cores)
    free, total = torch.cuda.mem_get_info()
    return DeviceDescription(
        type="cuda",
        name=torch.cuda.get_device_name(),
        available_memory=free,
        total_memory=total,
        cores=cores,
        capability=torch.cuda.get_device_capability(),
    )
