"""What a client sees of its tokens: deltas, stops, finish reasons, and an empty table at the end."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.ipc.channels import InMemoryChannel
from jackfield.ipc.messages import (
    BatchTextOutput,
    BatchTokenOutput,
    FinishReason,
    RequestOpened,
    SamplingParams,
    TextOutput,
    TokenOutput,
)
from jackfield.managers.detokenizer_manager import DetokenizerManager
from jackfield.managers.text.tokenizer import Tokenizer
from jackfield.observability.clock import ManualClock

LENGTH = FinishReason(type="length", length=1)


@dataclass
class Bench:
    """A manager between two in-memory channels, and the client's view of what came out."""

    tokenizer: Tokenizer | None
    clock: Any = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.inbox = InMemoryChannel(BatchTokenOutput)
        self.outbox = InMemoryChannel(BatchTextOutput)
        self.manager = DetokenizerManager(self.tokenizer, self.inbox, self.outbox, self.clock)

    def open(self, rid: str = "r", *, stream: bool = True, **sampling: Any) -> None:
        opened = RequestOpened(rid=rid, sampling=SamplingParams(**sampling), stream=stream)
        self.inbox.send(BatchTokenOutput(opened=[opened]))
        self.manager.step()

    def send(self, *entries: TokenOutput) -> list[TextOutput]:
        self.inbox.send(BatchTokenOutput(outputs=list(entries)))
        assert self.manager.step() == 1
        message = self.outbox.receive()
        assert self.outbox.receive() is None
        return list(message.outputs) if message is not None else []

    def tokens(self, ids: Sequence[int], rid: str = "r", finish: FinishReason | None = None) -> list[TextOutput]:
        return self.send(TokenOutput(rid=rid, ids=list(ids), finish=finish))

    def run(self, ids: Sequence[int], finish: FinishReason = LENGTH, **sampling: Any) -> Answer:
        """One token an entry, the finish with the last one, as a scheduler does it that stops when it is told to."""
        self.open(**sampling)
        answer = Answer()
        for position, token in enumerate(ids):
            last = position == len(ids) - 1
            for output in self.tokens([token], finish=finish if last else None):
                answer.take(output)
            if answer.finish is not None and not answer.closed:
                assert answer.stop_scheduler
                answer.take(self.tokens([], finish=FinishReason(type="stop", matched="told"))[0])
                break
        assert answer.closed
        assert len(self.manager) == 0
        return answer


@dataclass
class Answer:
    deltas: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    closed: bool = False
    stop_scheduler: bool = False

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    def take(self, output: TextOutput) -> None:
        assert not self.closed
        assert self.finish is None or not (output.text or output.ids or output.finish)
        self.deltas.append(output.text)
        self.ids += output.ids
        self.finish = self.finish or output.finish
        self.closed = output.closed
        self.stop_scheduler |= output.stop_scheduler


@pytest.fixture
def bench(byte_level: Tokenizer) -> Bench:
    return Bench(byte_level)


def end_id(tokenizer: Tokenizer) -> int:
    assert tokenizer.eos_token_id is not None
    return tokenizer.eos_token_id


EMOJI = "😀😀😀👨‍👩‍👧‍👦漢字"


@pytest.mark.parametrize("interval", [1, 4])
@pytest.mark.parametrize("stream", [True, False])
def test_b01_characters_spread_over_tokens(
    byte_level: Tokenizer, byte_ids: Callable[[bytes], list[int]], interval: int, stream: bool
) -> None:
    ids = byte_ids(EMOJI.encode())
    answer = Bench(byte_level).run(ids, stream=stream, stream_interval=interval)
    assert answer.text == EMOJI
    assert not any("\ufffd" in delta for delta in answer.deltas)
    assert answer.ids == ids


@pytest.mark.parametrize("stream", [True, False])
def test_b04_stop_string_that_spans_tokens(byte_level: Tokenizer, stream: bool) -> None:
    ids = byte_level.encode("DEFGHIJK")
    answer = Bench(byte_level).run(ids, stream=stream, stop=("FGHIJ",))
    assert answer.text == "DE"
    assert answer.finish == FinishReason(type="stop", matched="FGHIJ")
    assert byte_level.decode(answer.ids) == "DEFGHIJ"


def test_b04_no_stop_trim_keeps_the_stop_string_and_nothing_after_it(bench: Bench, byte_level: Tokenizer) -> None:
    answer = bench.run(byte_level.encode("DEFGHIJK"), stop=("FGHIJ",), no_stop_trim=True)
    assert answer.text == "DEFGHIJ"


@pytest.mark.parametrize(
    ("skip", "no_trim", "shown"),
    [(True, False, "ab"), (False, False, "ab"), (True, True, "ab"), (False, True, "ab<|end|>")],
)
def test_b13_end_token_is_shown_only_on_demand_and_cuts_nothing(
    bench: Bench, byte_level: Tokenizer, skip: bool, no_trim: bool, shown: str
) -> None:
    end = end_id(byte_level)
    ids = [*byte_level.encode("ab"), end]
    finish = FinishReason(type="stop", matched=end)
    answer = bench.run(ids, finish, skip_special_tokens=skip, no_stop_trim=no_trim, stop_token_ids=(end,))
    assert (answer.text, answer.finish, answer.ids) == (shown, finish, ids)


def test_b13_an_ordinary_stop_token_is_hidden_too(bench: Bench, byte_level: Tokenizer) -> None:
    b = byte_level.encode("b")
    answer = bench.run([*byte_level.encode("the"), *b], FinishReason(type="stop", matched=b[0]))
    assert answer.text == "the"


def test_end_token_with_ignore_eos_is_an_ordinary_token(bench: Bench, byte_level: Tokenizer) -> None:
    ids = [*byte_level.encode("a"), end_id(byte_level), *byte_level.encode("b")]
    assert bench.run(ids, ignore_eos=True).text == "ab"


def test_stop_string_wins_over_the_schedulers_reason_in_the_same_entry(bench: Bench, byte_level: Tokenizer) -> None:
    bench.open(stop=("b",))
    end = end_id(byte_level)
    (output,) = bench.tokens([*byte_level.encode("xby"), end], finish=FinishReason(type="stop", matched=end))
    assert (output.text, output.finish) == ("x", FinishReason(type="stop", matched="b"))
    assert byte_level.decode(output.ids) == "xb"
    assert output.closed
    assert not output.stop_scheduler
    assert len(bench.manager) == 0


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("keep", "shown"), [(False, "total "), (True, "total 42.5")])
def test_a_stop_expression_ends_the_text_before_its_match(
    bench: Bench, byte_level: Tokenizer, stream: bool, keep: bool, shown: str
) -> None:
    pattern = "[0-9]{2}\\.[0-9]"
    ids = byte_level.encode("total 42.57 and")
    answer = bench.run(ids, stream=stream, stop_regex=(pattern,), no_stop_trim=keep)
    assert (answer.text, answer.finish) == (shown, FinishReason(type="stop", matched=pattern))
    assert byte_level.decode(answer.ids) == "total 42.5"


def test_the_stop_that_ends_first_wins_whether_string_or_expression(bench: Bench, byte_level: Tokenizer) -> None:
    ids = byte_level.encode("abcdef")
    first = bench.run(ids, stop=("cde",), stop_regex=("b.",))
    assert (first.text, first.finish) == ("a", FinishReason(type="stop", matched="b."))
    second = bench.run(ids, stop=("bc",), stop_regex=("c.e",))
    assert (second.text, second.finish) == ("a", FinishReason(type="stop", matched="bc"))


def test_an_expression_that_might_still_match_is_shown_at_the_end(bench: Bench, byte_level: Tokenizer) -> None:
    answer = bench.run(byte_level.encode("xFGH"), stop_regex=("F.{0,9}!",))
    assert (answer.text, answer.finish) == ("xFGH", LENGTH)


@pytest.mark.parametrize("stops", [{"stop": ("b",)}, {"stop_regex": ("[bB]",)}])
def test_b67_stops_are_looked_for_behind_the_least_tokens_only(
    bench: Bench, byte_ids: Callable[[bytes], list[int]], stops: dict[str, Any]
) -> None:
    ids = byte_ids(b"abxxbyy")
    answers = [bench.run(ids, min_new_tokens=least, **stops) for least in range(7)]
    assert [answer.text for answer in answers] == ["a", "a", "abxx", "abxx", "abxx", "abxxbyy", "abxxbyy"]
    # A match that begins before is none, and what is not searched is shown at once.
    straddling = bench.run(byte_ids(b"xFGyFG"), min_new_tokens=2, stop=("FG",))
    assert straddling.text == "xFGy"
    assert straddling.deltas[:3] == ["x", "F", "G"]


def test_b67_a_character_that_is_flushed_belongs_to_its_token(
    bench: Bench, byte_level: Tokenizer, byte_ids: Callable[[bytes], list[int]]
) -> None:
    ids = byte_ids("a😀".encode()[:-1])
    assert bench.run(ids, min_new_tokens=len(ids), stop=("\ufffd",)).text == "a\ufffd"
    assert bench.run(ids, min_new_tokens=len(ids) - 1, stop=("\ufffd",)).text == "a"


def test_stop_string_at_the_very_last_token_wins_over_length(bench: Bench, byte_level: Tokenizer) -> None:
    assert bench.run(byte_level.encode("xb"), LENGTH, stop=("b",)).finish == FinishReason(type="stop", matched="b")


def test_tokens_after_a_stop_string_are_ignored_until_the_scheduler_lets_go(
    bench: Bench, byte_level: Tokenizer
) -> None:
    bench.open(stop=("b",))
    (output,) = bench.tokens(byte_level.encode("xb"))
    assert (output.text, output.stop_scheduler, output.closed) == ("x", True, False)
    assert bench.tokens(byte_level.encode("y")) == []
    last = TokenOutput(rid="r", ids=byte_level.encode("z"), finish=LENGTH, prompt_tokens=7, cached_tokens=3)
    (closing,) = bench.send(last)
    assert (closing.text, closing.ids, closing.finish, closing.closed) == ("", [], None, True)
    assert (closing.prompt_tokens, closing.cached_tokens, closing.stop_scheduler) == (7, 3, False)
    assert len(bench.manager) == 0


def test_held_back_beginning_of_a_stop_string_is_shown_at_the_end(bench: Bench, byte_level: Tokenizer) -> None:
    answer = bench.run(byte_level.encode("xFG"), stop=("FGHIJ",))
    assert (answer.text, answer.finish) == ("xFG", LENGTH)


def test_cut_character_is_shown_at_the_end_as_the_full_decoding_does(
    bench: Bench, byte_level: Tokenizer, byte_ids: Callable[[bytes], list[int]]
) -> None:
    ids = byte_ids("a😀".encode()[:-1])
    assert bench.run(ids).text == byte_level.decode(ids) == "a\ufffd"


def test_cut_character_before_a_stop_token(
    bench: Bench, byte_level: Tokenizer, byte_ids: Callable[[bytes], list[int]]
) -> None:
    end = end_id(byte_level)
    ids = [*byte_ids("a😀".encode()[:-1]), end]
    answer = bench.run(ids, FinishReason(type="stop", matched=end), no_stop_trim=True, skip_special_tokens=False)
    assert answer.text == "a\ufffd<|end|>"


def test_max_new_tokens_zero_is_an_answer_without_tokens(bench: Bench) -> None:
    bench.open(max_new_tokens=0)
    (output,) = bench.tokens([], finish=FinishReason(type="length", length=0))
    assert (output.text, output.ids, output.closed) == ("", [], True)
    assert output.finish == FinishReason(type="length", length=0)


@pytest.mark.parametrize("interval", [1, 3])
def test_stream_interval_first_token_at_once_then_every_n(
    byte_level: Tokenizer, byte_ids: Callable[[bytes], list[int]], interval: int
) -> None:
    bench = Bench(byte_level)
    bench.open(stream_interval=interval)
    ids = byte_ids(b"ABCDEFGH")
    sizes = []
    for token in ids:
        outputs = bench.tokens([token])
        sizes.append(len(outputs[0].ids) if outputs else 0)
        assert all(byte_level.decode(output.ids) == output.text for output in outputs)
    assert sizes == {1: [1] * 8, 3: [1, 0, 0, 3, 0, 0, 3, 0]}[interval]
    (last,) = bench.tokens([], finish=LENGTH)
    assert byte_level.decode(last.ids) == last.text == {1: "", 3: "H"}[interval]


def test_what_is_not_streamed_is_told_once(bench: Bench, byte_level: Tokenizer) -> None:
    bench.open(stream=False)
    assert bench.tokens(byte_level.encode("abc")) == []
    (output,) = bench.tokens(byte_level.encode("d"), finish=LENGTH)
    assert output.text == "abcd"


def test_requests_of_one_message_do_not_mix(bench: Bench, byte_level: Tokenizer) -> None:
    bench.open("one", stop=("b",))
    bench.open("two")
    outputs = bench.send(
        TokenOutput(rid="two", ids=byte_level.encode("ab")), TokenOutput(rid="one", ids=byte_level.encode("ab"))
    )
    assert [(output.rid, output.text, output.finish is None) for output in outputs] == [
        ("two", "ab", True),
        ("one", "a", False),
    ]


def test_an_abort_shows_what_was_held_back(bench: Bench, byte_level: Tokenizer) -> None:
    bench.open(stop=("bbb",))
    bench.tokens(byte_level.encode("xb"))
    abort = FinishReason(type="abort", message="gone")
    (output,) = bench.tokens([], finish=abort)
    assert (output.text, output.finish, output.closed) == ("b", abort, True)


def test_a_request_that_ended_before_it_was_opened_still_ends(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    abort = FinishReason(type="abort", message="gone")
    (output,) = bench.tokens([], rid="never", finish=abort)
    assert (output.rid, output.finish, output.closed) == ("never", abort, True)
    assert len(bench.manager) == 0


def test_late_tokens_of_an_unknown_request_are_dropped_with_one_warning(
    bench: Bench, byte_level: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert bench.tokens(byte_level.encode("a"), rid="late") == []
        assert bench.tokens(byte_level.encode("a"), rid="late") == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_opening_twice_is_a_fault_of_the_scheduler(bench: Bench) -> None:
    bench.open("r")
    with pytest.raises(RuntimeError, match="twice"):
        bench.open("r")


def test_without_a_tokenizer_ids_pass_through(byte_level: Tokenizer) -> None:
    answer = Bench(None).run([5, 6, 7], FinishReason(type="stop", matched=7))
    assert (answer.text, answer.ids) == ("", [5, 6, 7])


def test_one_request_that_cannot_be_decoded_ends_alone(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(byte_level)
    bench.open("bad")
    bench.open("good")
    state = bench.manager._states["bad"]

    def broken(token: int) -> str:
        raise LookupError("a fault of the decoder")

    monkeypatch.setattr(state._decoder, "push", broken)
    ids = byte_level.encode("a")
    bad, good = bench.send(TokenOutput(rid="bad", ids=ids), TokenOutput(rid="good", ids=ids))
    assert good.text == "a"
    assert bad.finish is not None
    assert (bad.finish.type, bad.finish.status_code, bad.stop_scheduler) == ("abort", 500, True)
    assert "a fault of the decoder" in caplog.text
    (closing,) = bench.tokens([], rid="bad", finish=LENGTH)
    assert closing.closed
    assert closing.finish is None


class TickingClock(ManualClock):
    """Every look at it takes a second."""

    def now(self) -> float:
        self.advance(1.0)
        return super().now()


def test_detokenize_seconds_are_told_once(byte_level: Tokenizer) -> None:
    bench = Bench(byte_level, TickingClock())
    bench.open(stop=("b",))
    times = [output.stage_times for token in byte_level.encode("xyb") for output in bench.tokens([token])]
    assert times == [{}, {}, {"detokenize": 3.0}]
    (closing,) = bench.send(TokenOutput(rid="r", finish=LENGTH, stage_times={"queue": 2.0}))
    assert closing.stage_times == {"queue": 2.0, "detokenize": 1.0}


@given(
    ids=st.lists(st.integers(0, 275), max_size=30),
    cuts=st.lists(st.integers(0, 30)),
    stops=st.lists(st.text("ab ", min_size=1, max_size=3), max_size=2, unique=True),
    stream=st.booleans(),
    interval=st.integers(1, 5),
    skip=st.booleans(),
    keep=st.booleans(),
)
def test_answer_is_the_full_decoding_cut_at_the_first_stop(
    byte_level: Tokenizer,
    ids: list[int],
    cuts: list[int],
    stops: list[str],
    stream: bool,
    interval: int,
    skip: bool,
    keep: bool,
) -> None:
    """Against the slow way: decode everything, look for the stop string, find the token that completes it."""
    bench = Bench(byte_level)
    bench.open(stop=tuple(stops), stream=stream, stream_interval=interval, skip_special_tokens=skip, no_stop_trim=keep)
    answer = Answer()
    edges = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    for start, end in itertools.pairwise(edges):
        for output in bench.tokens(ids[start:end]):
            answer.take(output)
    for output in bench.tokens([], finish=LENGTH):
        answer.take(output)
    assert len(bench.manager) == 0
    whole = byte_level.decode(ids, skip_special_tokens=skip)
    ends = [(whole.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in whole]
    if not ends:
        assert (answer.text, answer.ids, answer.finish) == (whole, ids, LENGTH)
        return
    end, _, stop = min(ends)
    assert answer.finish == FinishReason(type="stop", matched=stop)
    assert answer.text == whole[: end if keep else end - len(stop)]
    needed = next(
        count
        for count in range(len(ids) + 1)
        if len(byte_level.decode(ids[:count], skip_special_tokens=skip).rstrip("\ufffd")) >= end or (count == len(ids))
    )
    assert len(answer.ids) == needed
