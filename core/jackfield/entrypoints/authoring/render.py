"""The files of a new package, from templates that lie beside this module. It knows no names; they come with the package.

A template's path is the path of the file: `package` stands for the import package, `dot-` for a leading dot, and `.jinja` is
dropped. What a kind has under a path replaces what all kinds have there. An unknown variable in a template is an error.
"""

from __future__ import annotations

import datetime
from pathlib import Path, PurePosixPath

from jackfield import __version__
from jackfield.entrypoints.authoring.kind_words import WORDS
from jackfield.entrypoints.authoring.names import NewPackage
from jackfield.hookspecs.kinds import KINDS

TEMPLATES = Path(__file__).parent / "templates"

_ENDING = ".jinja"


def render(new: NewPackage) -> dict[str, str]:
    """Path of each file below the package's directory -> its text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # this is no HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    variables = _variables(new)
    sources = {
        _path_of(PurePosixPath(source).relative_to(folder), new): source
        for folder in ("common", new.kind)
        for source in environment.list_templates(filter_func=lambda name: name.startswith(f"{folder}/"))  # noqa: B023
    }
    sources["LICENSE"] = f"licenses/{new.license}{_ENDING}"
    return {path: environment.get_template(source).render(variables) for path, source in sorted(sources.items())}


def write(new: NewPackage) -> list[Path]:
    """Write them all, and say which. Everything is rendered before the first is written."""
    written = []
    for path, text in render(new).items():
        file = new.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        written.append(file)
    return written


def _path_of(template: PurePosixPath, new: NewPackage) -> str:
    parts = [new.package if part == "package" else part for part in template.parts]
    return "/".join(f".{part[4:]}" if part.startswith("dot-") else part for part in parts).removesuffix(_ENDING)


def _variables(new: NewPackage) -> dict[str, object]:
    kind, words = KINDS[new.kind], WORDS[new.kind]
    major, minor = __version__.split(".")[:2]
    return {
        "kind": kind.name,
        "kind_summary": kind.summary,
        "contract": kind.contract_version,
        "flag": kind.flag,
        "name": new.name,
        "distribution": new.distribution,
        "package": new.package,
        "class_name": new.class_name,
        "module": words.module,
        "suite": "".join(word.capitalize() for word in kind.name.split("_")) + "Conformance",
        "torch": words.torch,
        "core_range": f">={major}.{minor},<{_next(major, minor)}",
        "author": new.author,
        "license": new.license,
        "year": datetime.date.today().year,
    }


def _next(major: str, minor: str) -> str:
    """The first version of the core that may break what was built for this one: before 1.0, the next minor."""
    return f"0.{int(minor) + 1}" if major == "0" else str(int(major) + 1)
