"""What the configuration does not import: it is read by `explain` and by every process that must stay light."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "transformers", "huggingface_hub", "tokenizers", "starlette")


def test_the_configuration_imports_nothing_heavy_and_no_plugin() -> None:
    code = (
        "import pkgutil, importlib, sys, jackfield.config as c\n"
        "for m in pkgutil.walk_packages(c.__path__, 'jackfield.config.'): importlib.import_module(m.name)\n"
        "from jackfield.config.device import describe_device; describe_device('cpu')\n"
        f"print([n for n in sys.modules if n in {HEAVY!r} or n.startswith('jackfield_')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
