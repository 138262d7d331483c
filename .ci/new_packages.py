"""Writes a package of each kind, as `jackfield new` does, into a folder: `make lint` types them with everything else."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from jackfield.entrypoints.authoring.names import new_package
from jackfield.entrypoints.authoring.render import write
from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.catalogue import Catalogue

folder = Path(sys.argv[1])
shutil.rmtree(folder, ignore_errors=True)
for kind in KINDS:
    write(new_package(kind, "my-own", catalogue=Catalogue(), directory=str(folder / kind)))
