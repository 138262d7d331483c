"""What the suites of computing kinds share: the device and the dtypes of a run, and what a plugin's probe refuses."""

from __future__ import annotations

import torch

from jackfield.config.device import describe_device
from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs import Need
from jackfield.stack.discovery.catalogue import PluginRow
from jackfield.stack.discovery.claims import claimed
from jackfield.stack.selection.probes import ask_probe, probe_here
from jackfield.testing.conformance.suite import Conformance

INTERPRETED = "-interpreted"
"""`--device cpu-interpreted`: kernels of a device that is not here run in their language's interpreter, on CPU tensors. The
manifest need not list that device."""

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
    return not probe_here(row, Need(device=device, dtype=dtype), describe_device(device))


class ComputingConformance(Conformance):
    """A suite whose checks run on `device`."""

    torch = True

    def here(self) -> str:
        """The torch device of the checks. Ends a check as "cannot run" if there is none for this plugin."""
        device = self.device.removesuffix(INTERPRETED)
        listed = self.manifest().devices
        if listed and device not in listed and not self.device.endswith(INTERPRETED):
            self.cannot_run(f"devices are {', '.join(listed)}; run with --device {listed[0]}")
        try:
            describe_device(device)
        except ConfigurationError as error:
            self.cannot_run(str(error))
        return device

    def dtypes(self) -> list[str]:
        """The dtypes that it claims, float32 first."""
        listed = self.manifest().dtypes or DTYPES
        return sorted(listed, key=lambda name: (name != "float32", listed.index(name)))

    def refusals(self, need: Need) -> list[str]:
        """Why the plugin's probe would not let it be chosen for such a run."""
        probe = self.manifest().probe
        return [] if probe is None else ask_probe(probe, need, describe_device(need.device))

    def invariant_dtypes(self) -> list[str]:
        """The dtypes for which it claims "batch_invariant" here; ends the check if there is none."""
        device = self.here()
        found = [name for name in self.dtypes() if claimed(self.manifest().features, device, name)]
        if not found:
            self.not_claimed(f"features has no 'batch_invariant' for {device}")
        return found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, so that NaN equals NaN and 0 is not -0."""
    return tensor.detach().contiguous().cpu().view(torch.uint8)
