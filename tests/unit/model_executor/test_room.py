"""Pool sizing: what is chosen, what is refused, and with which numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.hookspecs import InsufficientMemory
from jackfield.model_executor.pool_sizes import pool_tokens
from jackfield.model_executor.room import CPU_MOST_TOKENS, Room, room_for_kv

MIB, GIB = 2**20, 2**30


def cpu(free: int, **changes: Any) -> Room:
    fields: dict[str, Any] = {
        "device": "cpu",
        "host": True,
        "before": 2 * free,
        "free": free,
        "step": 0,
        "fraction": None,
    }
    return room_for_kv(**{**fields, **changes})


def gpu(**changes: Any) -> Room:
    """80 GiB free before the weights, which took 16."""
    fields: dict[str, Any] = {"device": "cuda:0", "host": False, "before": 80 * GIB, **changes}
    return cpu(fields.pop("free", 64 * GIB), **fields)


def test_a_cpu_pool_takes_a_fifth_of_the_memory_in_whole_pages() -> None:
    # 5 GiB available, 1 MiB a token: a fifth is 1024 tokens, which is 146 pages of 7, one of them the dummy
    assert pool_tokens(wanted=None, page_size=7, page_bytes=7 * MIB, room=cpu(5 * GIB)) == 145 * 7


def test_a_cpu_pool_is_never_larger_than_is_useful_unless_a_share_is_named() -> None:
    assert pool_tokens(wanted=None, page_size=1, page_bytes=1, room=cpu(GIB)) == CPU_MOST_TOKENS == 65536
    assert pool_tokens(wanted=None, page_size=1, page_bytes=16, room=cpu(GIB, fraction=0.75)) == GIB // 2 // 16 - 1


def test_a_named_size_is_rounded_down_to_pages() -> None:
    assert pool_tokens(wanted=100, page_size=16, page_bytes=16, room=cpu(GIB)) == 96


@pytest.mark.parametrize(
    ("changes", "share", "most"),
    [
        # Nine tenths of 80 are 72, of which the weights have 16; a named size may take what is free.
        ({}, 56, 64),
        # The largest step takes more than the tenth that is left: the pool makes room for it and a quarter more.
        ({"step": 8 * GIB}, 54, 54),
        ({"step": 4 * GIB}, 56, 59),
        ({"fraction": 0.5}, 24, 24),
        ({"fraction": 0.5, "step": 8 * GIB}, 24, 24),
        ({"fraction": 0.99, "step": 8 * GIB}, 54, 54),
        ({"fraction": 0.1}, 0, 0),
        ({"step": 60 * GIB}, 0, 0),
        # Somebody else has memory there: the share is of what was free.
        ({"before": 40 * GIB, "free": 30 * GIB}, 26, 30),
    ],
)
def test_the_room_beside_weights_and_the_largest_step(changes: dict[str, Any], share: int, most: int) -> None:
    found = gpu(**changes)
    assert (found.share // GIB, found.most // GIB, found.most_tokens) == (share, most, None)


@pytest.mark.parametrize(
    ("wanted", "room", "told"),
    [
        (8, cpu(GIB), "--max-total-tokens 8 is less than one page of 16 tokens"),
        (1600, cpu(99 * MIB), "cpu has 99.00 MiB free beside the weights: lower --max-total-tokens to 1568 or less"),
        (None, cpu(MIB), "not one page of 16 tokens"),
        (None, cpu(0), "not one page of 16 tokens"),
        (1600, cpu(MIB), "narrower --kv-cache-dtype"),
        (
            10**7,
            gpu(step=8 * GIB),
            "takes 610.35 GiB, but cuda:0 has 64.00 GiB free beside the weights, of which steps need 10.00 GiB: lower "
            "--max-total-tokens to 884720 or less",
        ),
        (10**6, gpu(fraction=0.5), "--mem-fraction-static 0.5 leaves 24.00 GiB of 80.00 GiB for KV: lower --max-total"),
        (None, gpu(step=60 * GIB), "of which steps need 75.00 GiB.*: free memory, raise --mem-fraction-static, lower"),
        (None, gpu(fraction=0.1), "--mem-fraction-static 0.1 leaves 0.00 MiB"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(wanted: int | None, room: Room, told: str) -> None:
    with pytest.raises(InsufficientMemory, match=told):
        pool_tokens(wanted=wanted, page_size=16, page_bytes=MIB, room=room)


@given(
    wanted=st.none() | st.integers(1, 10**6),
    page_size=st.integers(1, 64),
    bytes_per_token=st.integers(1, 10**5),
    before=st.integers(0, 10**11),
    used=st.integers(0, 10**11),
    step=st.integers(0, 10**10),
    host=st.booleans(),
    fraction=st.none() | st.floats(0.01, 0.99),
)
def test_a_pool_with_its_dummy_page_always_fits_beside_a_step(
    wanted: int | None,
    page_size: int,
    bytes_per_token: int,
    before: int,
    used: int,
    step: int,
    host: bool,
    fraction: float | None,
) -> None:
    page_bytes, free = page_size * bytes_per_token, max(0, before - used)
    room = room_for_kv(device="here", host=host, before=before, free=free, step=step, fraction=fraction)
    try:
        tokens = pool_tokens(wanted=wanted, page_size=page_size, page_bytes=page_bytes, room=room)
    except InsufficientMemory:
        return
    assert tokens > 0
    assert tokens % page_size == 0
    taken = (tokens // page_size + 1) * page_bytes
    assert taken + step <= free
    assert wanted is None or wanted - page_size < tokens <= wanted
    if fraction is not None:  # weights and KV together
        assert before - free + taken <= fraction * before + 1
