"""Shared by all tests of the repository: the embedded model, a tiny random one, and the soak factor."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Tests run many small tensors on few cores, often beside other processes: one thread each is both faster and steadier.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a shell starts in the background ignores Ctrl-C, and so do its children; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Examples are counted, never timed: a busy machine must not fail a test.
hypothesis.settings.register_profile("jackfield", deadline=None)
hypothesis.settings.load_profile("jackfield")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak-factor", type=int, default=1, help="how many times longer the randomised tests run")


SOAK_COUNTS = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SOAK_COUNTS] = Counter()
    config.addinivalue_line("markers", "soak: randomised, with a length that --soak-factor multiplies")


@pytest.fixture(scope="session")
def soak_factor(request: pytest.FixtureRequest) -> int:
    factor: int = request.config.getoption("--soak-factor")
    return factor


@pytest.fixture(scope="session")
def soak_counts(request: pytest.FixtureRequest) -> Counter[str]:
    """What the randomised tests did; printed at the end of the run."""
    return request.config.stash[SOAK_COUNTS]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.parallel import ByFile

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(config: pytest.Config) -> Generator[None, Any, Any]:
    report = yield
    if not hasattr(config, "workerinput"):
        return report
    from tests.parallel import sendable

    return sendable(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands its counts to the run that prints them."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["soak_counts"] = dict(session.config.stash[SOAK_COUNTS])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output: dict[str, Any] = getattr(node, "workeroutput", {})  # it has none if it crashed
    node.config.stash[SOAK_COUNTS].update(output.get("soak_counts", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if counts := config.stash[SOAK_COUNTS]:
        terminalreporter.write_line("soak: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


@pytest.fixture(scope="session")
def embedded_model() -> Path:
    """The embedded model's GGUF, fetched into the user's cache if it is not there yet."""
    from jackfield.hub.locate import locate_model

    return locate_model(None).path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama checkpoint of transformers' own making: 2 layers, 4 heads, 2 KV heads, 128 tokens, no tokenizer.

    The head's weights are drawn wide, so that greedy choices are far from ties.
    """
    torch = pytest.importorskip("torch")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=1,
        bos_token_id=0,
        pad_token_id=1,
        initializer_range=0.25,
    )
    model: Any = LlamaForCausalLM(config)
    path = tmp_path_factory.mktemp("tiny-llama")
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def reference_model(embedded_model: Path) -> Any:
    """transformers' own reading of the embedded model's weights, dequantised, in float32."""
    torch = pytest.importorskip("torch")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoModelForCausalLM, GgufConfig

        model: Any = AutoModelForCausalLM.from_pretrained(
            embedded_model.parent,
            gguf_file=embedded_model.name,
            quantization_config=GgufConfig(gguf_file=embedded_model.name, dequantize=True),
            dtype=torch.float32,
            attn_implementation="eager",
        )
    return model.eval()
