"""Pool sizing: what is chosen, what is refused, and what a container's limit leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jackfield.model_executor.device import CpuDevice
from jackfield.model_executor.memory import (
    CPU_MOST_TOKENS,
    InsufficientMemory,
    available_bytes,
    cgroup_available,
    pool_tokens,
)

CPU = torch.device("cpu")
GIB = 2**30


def test_a_cpu_pool_takes_a_fifth_of_the_memory_in_whole_pages() -> None:
    # 5 GiB available, 1 MiB a token: a fifth is 1024 tokens, which is 146 pages of 7
    assert pool_tokens(wanted=None, page_size=7, page_bytes=7 * 2**20, available=5 * GIB, device=CPU) == 146 * 7


def test_a_cpu_pool_is_never_larger_than_is_useful() -> None:
    assert pool_tokens(wanted=None, page_size=1, page_bytes=1, available=GIB, device=CPU) == CPU_MOST_TOKENS == 65536


def test_a_named_size_is_rounded_down_to_pages() -> None:
    assert pool_tokens(wanted=100, page_size=16, page_bytes=16, available=GIB, device=CPU) == 96


@pytest.mark.parametrize(
    ("wanted", "available", "told"),
    [
        (8, GIB, "--max-total-tokens 8 is less than one page of 16 tokens"),
        (1600, 99 * 2**20, "lower --max-total-tokens to 1568 or less"),
        (None, 2**20, "not one page of 16 tokens"),
        (None, 0, "not one page of 16 tokens"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(wanted: int | None, available: int, told: str) -> None:
    with pytest.raises(InsufficientMemory, match=told):
        pool_tokens(wanted=wanted, page_size=16, page_bytes=2**20, available=available, device=CPU)


@given(
    wanted=st.none() | st.integers(1, 10**6),
    page_size=st.integers(1, 64),
    bytes_per_token=st.integers(1, 10**5),
    available=st.integers(0, 10**11),
    device=st.sampled_from(["cpu", "cuda"]),
)
def test_a_pool_with_its_dummy_page_always_fits(
    wanted: int | None, page_size: int, bytes_per_token: int, available: int, device: str
) -> None:
    page_bytes = page_size * bytes_per_token
    try:
        tokens = pool_tokens(
            wanted=wanted, page_size=page_size, page_bytes=page_bytes, available=available, device=torch.device(device)
        )
    except InsufficientMemory:
        return
    assert tokens > 0
    assert tokens % page_size == 0
    assert (tokens // page_size + 1) * page_bytes <= available
    assert wanted is None or wanted - page_size < tokens <= wanted


def test_a_container_limit_counts_file_cache_as_available(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 100\nactive_file 50\n")
    assert cgroup_available(tmp_path) == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert cgroup_available(tmp_path) is None


def test_the_older_control_groups_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("1000\n")
    (tmp_path / "memory/memory.usage_in_bytes").write_text("1100\n")
    (tmp_path / "memory/memory.stat").write_text("cache 0\n")
    assert cgroup_available(tmp_path) == 0
    (tmp_path / "memory/memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert cgroup_available(tmp_path) is None
    assert cgroup_available(tmp_path / "nowhere") is None


def test_this_machine_has_memory() -> None:
    assert available_bytes(CpuDevice()) > 2**20
