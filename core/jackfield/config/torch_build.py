"""Whether the installed torch is built for CUDA, told without importing it: by its file `version.py`, which every build has."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

_VERSION = re.compile(r"^__version__\s*=\s*['\"](.+)['\"]", re.MULTILINE)
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*(\S+)", re.MULTILINE)


def without_cuda() -> str:
    """ "2.13.0+cpu", the version of the installed torch, if it is built without CUDA. "" if it is built with it, if none is
    installed (a run without a model needs none), and if its files do not say."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    try:
        text = Path(spec.origin).with_name("version.py").read_text()
    except OSError:
        return ""
    cuda, version = _CUDA.search(text), _VERSION.search(text)
    if cuda is None or cuda[1] != "None":
        return ""
    return "of an unknown version" if version is None else version[1]
