"""Fetches a checkpoint from the Hugging Face hub: safetensors and the JSON files beside them, nothing that is code or
pickle. The only place that imports `huggingface_hub`, which reads its environment (HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN,
...) at import.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from jackfield.config.errors import ConfigurationError

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
"""A model id: owner and name."""

WANTED = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja")
# Files in folders are other editions (original/, onnx/) and not wanted, but for additional_chat_templates/ and the numbered
# folders of sentence-transformers' modules (1_Pooling/); consolidated*.safetensors repeat the weights under other names.
UNWANTED = ("[!a0-9]*/*", "a[!d]*/*", "[0-9][!_]*/*", "consolidated*.safetensors")


def fetch_from_hub(
    repo: str,
    *,
    revision: str | None = None,
    cache: Path | None = None,
    progress: bool = True,
    endpoint: str | None = None,
) -> Path:
    """The directory of one snapshot of `repo`, fetched as far as it is not in the hub's own cache already.

    revision: branch, tag or commit; cache: in place of the hub's own cache directory; endpoint: in place of HF_ENDPOINT.
    Raises ConfigurationError with what a user can do.
    """
    import huggingface_hub
    from huggingface_hub import constants, errors

    where = endpoint or constants.ENDPOINT
    name = repo if revision is None else f"{repo} at {revision}"
    # The base class of everything that the HTTP library below raises; which library that is differs between versions
    http_error: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    try:
        with _bars(progress):
            snapshot = huggingface_hub.snapshot_download(
                repo,
                revision=revision,
                cache_dir=cache,
                endpoint=endpoint,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
            )
    except errors.GatedRepoError as error:
        raise ConfigurationError(
            f"{name} is gated: accept its conditions at {where}/{repo}, then log in (hf auth login) or set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigurationError(
            f"{where} has no model {repo}, or it is private: check --model-path, or log in (hf auth login, HF_TOKEN); "
            "a local model is named by its path (./name)"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigurationError(f"{where}/{repo} has no revision {revision!r}: check --revision") from error
    except errors.LocalEntryNotFoundError as error:
        raise ConfigurationError(_unreachable(name, where, offline=constants.HF_HUB_OFFLINE, cause=error)) from error
    except errors.HFValidationError as error:
        raise ConfigurationError(f"{repo!r} is no valid Hugging Face id: {error}") from error
    except (http_error, OSError) as error:
        if _status(error) in (401, 403):
            raise ConfigurationError(
                f"{where} refuses access to {name} ({_first_line(error)}): log in (hf auth login) or set HF_TOKEN"
            ) from error
        raise ConfigurationError(
            f"{name} could not be fetched from {where}: {_first_line(error)}; try again, or name a local model"
        ) from error
    path = Path(snapshot)
    if not any(path.glob("*.safetensors")):
        raise ConfigurationError(
            f"{name} holds no safetensors weights{_what_it_has(repo, revision, endpoint)}; only safetensors are fetched. "
            "Look for another edition of the model, or convert it and name the directory"
        )
    return path


def _unreachable(name: str, where: str, *, offline: bool, cause: BaseException) -> str:
    if offline:
        return (
            f"{name} is not (wholly) in the hub's cache, and HF_HUB_OFFLINE forbids to fetch it: unset that, "
            "or name a local model with --model-path"
        )
    reason = _first_line(cause.__cause__ or cause)
    return (
        f"{name} is not (wholly) in the hub's cache, and {where} does not answer ({reason}): check the network or the "
        "proxy, set HF_ENDPOINT to a mirror, or name a local model with --model-path"
    )


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _what_it_has(repo: str, revision: str | None, endpoint: str | None) -> str:
    """The repository's weight files, for the message; nothing if the hub cannot be asked."""
    import huggingface_hub
    from huggingface_hub import errors

    http_error: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    try:
        files = huggingface_hub.HfApi(endpoint=endpoint).list_repo_files(repo, revision=revision)
    except (http_error, OSError):
        return ""
    weights = [file for file in files if any(fnmatch(file, f"*.{end}") for end in ("bin", "pt", "pth", "gguf", "onnx"))]
    shown = weights or files
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return f" (it has {', '.join(shown[:5])}{more})" if shown else " (it is empty)"


@contextmanager
def _bars(progress: bool) -> Iterator[None]:
    """The hub's own bars on stderr, or none."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if progress or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
