"""What the contract asks of every plugin of this kind, on archives that are written here."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jackfield.testing import checkpoints
from jackfield.testing.conformance import LoaderConformance


class TestConformance(LoaderConformance):
    plugin = "npz"

    def checkpoint(self, folder: Path) -> checkpoints.Checkpoint:
        checkpoints.write_text_side(folder)
        given = checkpoints.tensors("float32")
        file = folder / "model.npz"
        np.savez(file, **{name: stored.rows.view("<f4").reshape(stored.shape) for name, stored in given.items()})
        return checkpoints.Checkpoint(path=folder, files=(file,), tensors=given, config=checkpoints.CONFIG)
