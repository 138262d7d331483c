from pathlib import Path

from jackfield.hookspecs import ModelSource

def MySource(path: Path) -> ModelSource: ...
