"""Which loader reads the model and which plugin has its code. Shared by the gathering of facts and by resolution.

Knows file names and architecture names; opens and imports nothing.
"""

from __future__ import annotations

from pathlib import Path

from jackfield.config import embedded
from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.config.server_args import ServerArgs
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.selection.checks import device_problems, dtype_problems, file_problems, manifest_of
from jackfield.stack.selection.choice import Choice, Selector, described
from jackfield.stack.selection.invariance import Invariance


def model_files(path: Path | None) -> tuple[str, tuple[str, ...]]:
    """How messages call the model's files, and their names. None is the embedded model, which need not be there yet.

    Raises ConfigurationError if nothing is there.
    """
    if path is None:
        return embedded.GGUF_FILE, (embedded.GGUF_FILE,)
    if path.is_dir():
        return str(path), tuple(sorted(entry.name for entry in path.iterdir() if entry.is_file()))
    if path.is_file():
        return str(path), (path.name,)
    raise ConfigurationError(f"--model-path: there is no file or directory {str(path)!r}")


def select_loader(selector: Selector, args: ServerArgs, file: str, names: tuple[str, ...]) -> Choice:
    """The loader that is named, else the one that recognises the files. Raises ConfigurationError."""
    named = args.plugin_for("loader")
    return selector.choose(
        "loader", named, "load_format", lambda row: file_problems(row, file, names, named=named is not None)
    )


def select_worker(selector: Selector, args: ServerArgs, catalogue: Catalogue, device: str, dtype: str | None) -> Choice:
    """The worker that is named, else the best one. Raises ConfigurationError."""
    invariance = Invariance(args.enable_deterministic_inference, device, dtype, catalogue)
    return selector.choose(
        "worker",
        args.plugin_for("worker"),
        "worker",
        lambda row: device_problems(row, device) + dtype_problems(row, dtype) + invariance.problems(row),
    )


def select_model(
    selector: Selector, args: ServerArgs, architecture: str, catalogue: Catalogue, device: str, dtype: str | None
) -> Choice:
    """The plugin with the code of an architecture. Priorities do not count: of two that offer it one must be named.

    Raises ConfigurationError.
    """

    def judge(row: PluginRow) -> list[str]:
        offered = manifest_of(row).architectures
        if architecture not in offered:
            return [f"it does not offer {architecture}; it offers {', '.join(offered)}"]
        return device_problems(row, device) + dtype_problems(row, dtype)

    named = args.plugin_for("model")
    if named is None:
        _unambiguous(catalogue, selector, architecture)
    return selector.choose("model", named, "model_impl", judge)


def _unambiguous(catalogue: Catalogue, selector: Selector, architecture: str) -> None:
    rows = [row for row in catalogue.rows("model") if row.manifest is not None]
    offers = [row for row in rows if architecture in manifest_of(row).architectures]
    healthy = [row for row in offers if row.status in (Status.OK, Status.CONFLICT)]
    # What is used only when it is named leaves the choice to the others: a stranger's that nobody allowed, for one.
    usable = [row for row in healthy if selector.only_named(row) is None]
    if len({row.name for row in usable}) > 1:
        raise ConfigurationError(
            f"{' and '.join(described(row) for row in usable)} both offer {architecture}: name one with --model-impl "
            f"({', '.join(sorted({row.name for row in usable}))})"
        )
    if healthy:
        return
    if offers:
        reasons = "; ".join(f"{described(row)} offers it but {row.problem}" for row in offers)
        raise ConfigurationError(f"no usable model plugin offers the architecture {architecture}: {reasons}")
    known = sorted({name for row in rows if row.status is Status.OK for name in manifest_of(row).architectures})
    available = f"; available: {', '.join(known)}" if known else "; no model plugin is installed"
    guess = did_you_mean(architecture, known)
    raise ConfigurationError(
        f"no installed model plugin offers the architecture {architecture}"
        f"{guess if 'did you mean' in guess else ''}{available}"
    )
