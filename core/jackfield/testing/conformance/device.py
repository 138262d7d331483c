"""What the suites of computing kinds share: the device and the dtypes of a run, and what a plugin's probe refuses."""

from __future__ import annotations

import os
from typing import Any

import torch

from jackfield.config.device import describe_device, why_absent
from jackfield.config.errors import either
from jackfield.hookspecs import Need
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.discovery.claims import claimed
from jackfield.stack.discovery.interpreter import INTERPRETED
from jackfield.testing.conformance.suite import Conformance

DTYPES = ("float32", "bfloat16", "float16")
"""Of a plugin that lists none, and so takes any."""


def usable(row: PluginRow, device: str, dtype: str, *, deterministic: bool = False) -> bool:
    """Whether a plugin that a suite runs beside the tested one can serve such a run, by its manifest and its probe."""
    manifest = row.manifest
    if manifest is None or (manifest.devices and device not in manifest.devices):
        return False
    if (manifest.dtypes and dtype not in manifest.dtypes) or (
        deterministic and not claimed(manifest.features, device, dtype)
    ):
        return False
    from jackfield.stack.selection.probes import probe_here

    return not probe_here(row, Need(device=device, dtype=dtype), describe_device(device))


def _absent(device: str) -> str:
    """Why a suite on it cannot run on this machine; "" if it can."""
    why = why_absent(device)
    return why and f"--device {device}: {why}"


class ComputingConformance(Conformance):
    """A suite whose checks run on `device`: a device that the manifest lists, or INTERPRETED, where the kernels of another one
    run on CPU tensors under the manifest's `interpreter`. Nowhere else is `devices` not enforced."""

    torch = True

    @classmethod
    def interpreted(cls) -> bool:
        return cls.device == INTERPRETED

    def here(self) -> str:
        """The torch device of the checks. Ends a check as "cannot run" if there is none for this plugin."""
        listed, interpreter = self.manifest().devices, self.manifest().interpreter
        if self.interpreted():
            if interpreter is None:
                self.cannot_run("its manifest has no `interpreter`, under which its kernels would run on a CPU")
            unset = {name: text for name, text in interpreter.environment.items() if os.environ.get(name) != text}
            if unset:
                told = " ".join(f"{name}={text}" for name, text in unset.items())
                self.cannot_run(f"set {told} before Python starts; `jackfield conformance --device {INTERPRETED}` does")
            return "cpu"
        ways = [f"--device {name}" for name in listed or ("cpu",) if not _absent(name)]
        ways += [f"--device {INTERPRETED}"] if interpreter is not None else []
        way_out = f"; run with {either(ways)}" if ways else ""
        if listed and self.device not in listed:
            absent = "" if ways else f", and none is here ({', '.join(map(_absent, listed))})"
            self.cannot_run(f"devices are {', '.join(listed)}{absent}{way_out}")
        if why := _absent(self.device):
            self.cannot_run(f"{why}{way_out}")
        return self.device

    def claimed_for(self) -> str:
        """The device for which a claim is held against the checks: under an interpreter the one whose kernels run there."""
        others = [name for name in self.manifest().devices if name != "cpu"]
        return others[0] if self.interpreted() and others else self.here()

    def dtypes(self) -> list[str]:
        """The dtypes that it claims, and that are computed here as the device does; float32 first."""
        listed, interpreter = self.manifest().dtypes or DTYPES, self.manifest().interpreter
        if self.interpreted() and interpreter is not None and interpreter.dtypes:
            listed = tuple(name for name in listed if name in interpreter.dtypes)
            if not listed:
                self.cannot_run(f"its interpreter computes {', '.join(interpreter.dtypes)}, which it does not claim")
        return sorted(listed, key=lambda name: (name != "float32", listed.index(name)))

    @classmethod
    def _identify(cls) -> dict[str, Any]:
        facts = super()._identify()
        if not cls.interpreted() or "problem" in facts:
            return facts
        manifest = cls.selected().manifest
        shown = () if manifest.interpreter is None else manifest.interpreter.dtypes
        return facts | {"dtypes_not_here": [name for name in manifest.dtypes or DTYPES if shown and name not in shown]}

    def refusals(self, need: Need) -> list[str]:
        """Why the plugin's probe would not let it be chosen for such a run."""
        from jackfield.stack.selection.probes import ask_probe

        probe = self.manifest().probe
        return [] if probe is None else ask_probe(probe, need, describe_device(need.device))

    def invariant_dtypes(self) -> list[str]:
        """The dtypes for which it claims "batch_invariant" here; ends the check if there is none."""
        device = self.claimed_for()
        found = [name for name in self.dtypes() if claimed(self.manifest().features, device, name)]
        if not found:
            self.not_claimed(f"features has no 'batch_invariant' for {device}")
        return found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, so that NaN equals NaN and 0 is not -0."""
    return tensor.detach().contiguous().cpu().view(torch.uint8)
