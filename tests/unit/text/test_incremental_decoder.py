"""Joined increments are the full decoding, for every family of tokenizer and any ids."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from jackfield.managers.text import incremental_decoder
from jackfield.managers.text.decoding_scheme import ByteLevelScheme, PieceScheme, WindowScheme
from jackfield.managers.text.incremental_decoder import WindowDecoder, decode_bytewise
from jackfield.managers.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
FAMILIES = [
    "byte_level",
    "fallback",
    "fallback_unstripped",
    "metaspace",
    "metaspace_never",
    "word_piece",
    "suffix",
    "no_decoder",
]
# Ids beyond every vocabulary here included: padded rows of an embedding can be sampled.
ANY_IDS = st.lists(st.integers(0, 300), max_size=40)


def pushes(tokenizer: Tokenizer, ids: list[int], *, skip: bool) -> list[str]:
    decoder = tokenizer.incremental_decoder(skip_special_tokens=skip)
    return [*(decoder.push(token) for token in ids), decoder.flush()]


@pytest.mark.parametrize("family", FAMILIES)
@given(ids=ANY_IDS, skip=st.booleans())
def test_increments_add_up_to_the_full_decoding(
    tokenizers: dict[str, Tokenizer], family: str, ids: list[int], skip: bool
) -> None:
    tokenizer = tokenizers[family]
    if family in ("word_piece", "suffix", "no_decoder", "metaspace", "metaspace_never"):
        ids = [token % (tokenizer.vocab_size + 1) for token in ids]
    assert "".join(pushes(tokenizer, ids, skip=skip)) == tokenizer.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("family", [name for name in FAMILIES if not name.startswith("fallback")])
@given(ids=ANY_IDS, skip=st.booleans())
def test_the_full_decoding_is_the_librarys(
    tokenizers: dict[str, Tokenizer], libraries: dict[str, Library], family: str, ids: list[int], skip: bool
) -> None:
    assert tokenizers[family].decode(ids, skip_special_tokens=skip) == libraries[family].decode(
        ids, skip_special_tokens=skip
    )


@pytest.mark.parametrize("family", ["fallback", "fallback_unstripped"])
@given(text=st.text(alphabet="ab é▁猫😀\ufffd\n", max_size=12), skip=st.booleans())
def test_byte_fallback_decodes_valid_text_as_the_library_does(
    tokenizers: dict[str, Tokenizer], libraries: dict[str, Library], family: str, text: str, skip: bool
) -> None:
    tokenizer, library = tokenizers[family], libraries[family]
    ids: list[int] = []
    for char in text:
        whole = library.token_to_id(char.replace(" ", "▁"))
        ids += [whole] if whole is not None else [library.token_to_id(f"<0x{byte:02X}>") or 0 for byte in char.encode()]
    expected = library.decode(ids, skip_special_tokens=skip)
    assert "".join(pushes(tokenizer, ids, skip=skip)) == expected
    assert tokenizer.decode(ids, skip_special_tokens=skip) == expected


@given(ids=ANY_IDS, skip=st.booleans())
def test_byte_fallback_marks_each_bad_byte_once_and_keeps_the_good_characters(
    tokenizers: dict[str, Tokenizer], libraries: dict[str, Library], ids: list[int], skip: bool
) -> None:
    """Against a slow model written from the rule: runs of byte tokens, cut at the longest valid characters."""
    library, expected, run = libraries["fallback"], "", b""
    tokens = [library.id_to_token(token) for token in ids]
    for token in [*(token for token in tokens if token and not (skip and token in ("<s>", "</s>"))), None]:
        if token is not None and token.startswith("<0x"):
            run += bytes([int(token[3:5], 16)])
            continue
        while run:
            for size in range(min(4, len(run)), 0, -1):
                try:
                    char = run[:size].decode()
                except UnicodeDecodeError:
                    continue
                if len(char) == 1:
                    break
            else:
                char, size = REPLACEMENT, 1
            expected, run = expected + char, run[size:]
        expected += (token or "").replace("▁", " ")
    assert tokenizers["fallback"].decode(ids, skip_special_tokens=skip) == expected.removeprefix(" ")


def test_every_family_gets_the_decoder_that_fits_it(tokenizers: dict[str, Tokenizer]) -> None:
    schemes = {name: type(tokenizer._scheme) for name, tokenizer in tokenizers.items()}
    assert schemes == {
        "byte_level": ByteLevelScheme,
        "fallback": PieceScheme,
        "fallback_unstripped": PieceScheme,
        "metaspace": PieceScheme,
        "metaspace_never": PieceScheme,
        "word_piece": WindowScheme,
        "suffix": WindowScheme,
        "no_decoder": WindowScheme,
    }


def test_incomplete_character_is_held_back_and_shown_when_whole(
    byte_level: Tokenizer, byte_ids: Callable[[bytes], list[int]]
) -> None:
    assert pushes(byte_level, byte_ids("😀é".encode()), skip=True) == ["", "", "", "😀", "", "é", ""]


def test_genuine_replacement_character_flows_at_once(byte_level: Tokenizer) -> None:
    """A model may mean U+FFFD: it is a valid character, not an incomplete one."""
    token = byte_level.token_to_id("ï¿½")
    assert token is not None
    assert pushes(byte_level, [token, token], skip=True) == [REPLACEMENT, REPLACEMENT, ""]


def test_flush_shows_a_cut_character_as_the_full_decoding_does(
    byte_level: Tokenizer, byte_ids: Callable[[bytes], list[int]]
) -> None:
    ids = byte_ids("a😀".encode()[:-1])
    assert pushes(byte_level, ids, skip=True) == ["a", "", "", "", REPLACEMENT]
    assert byte_level.decode(ids) == f"a{REPLACEMENT}"


def test_byte_fallback_emoji_before_a_cut_one_survive(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["fallback"]
    ids = [tokenizer.token_to_id(f"<0x{byte:02X}>") or 0 for byte in "😀😀😀".encode()[:-1]]
    assert "".join(pushes(tokenizer, ids, skip=True)) == "😀😀" + REPLACEMENT * 3


@pytest.mark.parametrize("family", ["fallback", "metaspace", "word_piece"])
def test_leading_space_stays_when_the_text_goes_on_after_a_prompt(
    tokenizers: dict[str, Tokenizer], family: str
) -> None:
    tokenizer = tokenizers[family]
    word = "cat" if family == "word_piece" else "▁the"
    token, before = tokenizer.token_to_id(word), tokenizer.token_to_id("a")
    assert token is not None
    assert before is not None
    alone = tokenizer.incremental_decoder()
    after = tokenizer.incremental_decoder(context=[before])
    plain = word.strip("▁")
    assert alone.push(token) + alone.flush() == plain
    assert after.push(token) + after.flush() == f" {plain}"


def test_context_of_hidden_tokens_only_is_a_beginning(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["fallback"]
    bos, token = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("▁the")
    assert bos is not None
    assert token is not None
    decoder = tokenizer.incremental_decoder(context=[bos])
    assert decoder.push(token) == "the"


@given(
    data=st.one_of(st.binary(max_size=24), st.lists(st.sampled_from("😀é猫a".encode()), max_size=24).map(bytes)),
    cuts=st.lists(st.integers(0, 24)),
)
def test_bytewise_decoding_does_not_depend_on_the_cut(data: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    text, rest = "", b""
    for start, end in itertools.pairwise(edges):
        some, rest = decode_bytewise(rest + data[start:end], final=False)
        text += some
        assert len(rest) < 4
    some, rest = decode_bytewise(rest, final=True)
    assert rest == b""
    assert text + some == decode_bytewise(data, final=True)[0]


def test_window_stays_small_whatever_the_tokens() -> None:
    """The cost of a token does not grow with the text, not even when nothing becomes text or all of it looks cut."""
    for text_of in ("", REPLACEMENT, "a"):
        longest = 0

        def decode(ids: object, text_of: str = text_of) -> str:
            nonlocal longest
            assert isinstance(ids, list)
            longest = max(longest, len(ids))
            return text_of * len(ids)

        decoder = WindowDecoder(decode, lambda token: True, may_split=True)
        text = "".join(decoder.push(1) for _ in range(500)) + decoder.flush()
        assert text == text_of * 500
        assert longest <= 2 * incremental_decoder.MAX_PENDING


def test_unknown_decoder_with_bytes_shows_no_half_characters(
    libraries: dict[str, Library], make_tokenizer: Callable[..., Tokenizer]
) -> None:
    """A chain that nobody foresaw falls to the window, which waits for the whole character."""
    from tokenizers import decoders

    library = Library.from_str(libraries["byte_level"].to_str())
    library.decoder = decoders.Sequence([decoders.Replace("b", "c"), decoders.ByteLevel()])
    tokenizer = make_tokenizer(library)
    assert isinstance(tokenizer._scheme, WindowScheme)
    ids = tokenizer.encode("b😀b é😀😀")
    parts = pushes(tokenizer, ids, skip=True)
    assert "".join(parts) == "c😀c é😀😀" == tokenizer.decode(ids)
    assert REPLACEMENT not in "".join(parts)
