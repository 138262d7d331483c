"""The model's tokenizer: text to ids and back, on the `tokenizers` library alone.

Made from the files that a model source hands over. Knows no request, no chat template and no model; imports neither
torch nor transformers. After it is made nothing in it changes, so any thread may use it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import tokenizers

from jackfield.hookspecs.loader import ModelSourceError, TokenizerFiles
from jackfield.managers.errors import RequestError
from jackfield.managers.text.decoding_scheme import DecodingScheme, scheme_for
from jackfield.managers.text.incremental_decoder import IncrementalDecoder

MAX_ID = 2**32 - 1

Cut = Callable[[tokenizers.Encoding, tokenizers.Encoding | None, int], None]
_NOTHING: frozenset[int] = frozenset()


class Tokenizer:
    """Use `from_files`.

    special_ids   role ("bos_token", "eos_token", ...) -> id, for the roles whose token the vocabulary holds
    special_texts what the control tokens look like in a text
    added_texts   what stands for one token as a whole wherever it is in a text: control tokens, and others
    vocab_size    number of tokens, added ones included
    """

    def __init__(self, library: tokenizers.Tokenizer, files: TokenizerFiles) -> None:
        self._library = library
        self._add_bos = files.add_bos
        self._add_eos = files.add_eos
        self.special_tokens: Mapping[str, str] = MappingProxyType(dict(files.special_tokens))
        self.special_ids: Mapping[str, int] = MappingProxyType(
            {
                role: token_id
                for role, token in files.special_tokens.items()
                if (token_id := library.token_to_id(token)) is not None
            }
        )
        for wanted, role in ((files.add_bos, "bos_token"), (files.add_eos, "eos_token")):
            if wanted and role not in self.special_ids:
                raise ModelSourceError(
                    f"the checkpoint asks for its {role} around every prompt, but names none that its vocabulary holds"
                )
        added = library.get_added_tokens_decoder()
        self._special = frozenset(token_id for token_id, token in added.items() if token.special)
        self.special_texts = frozenset(token.content for token in added.values() if token.special)
        self.added_texts = frozenset(token.content for token in added.values())
        self.vocab_size = library.get_vocab_size(with_added_tokens=True)
        self._plain_lock = threading.Lock()
        self._plain: tokenizers.Tokenizer | None = None
        # The decoder's own state is its entry of tokenizer.json; to write all of the file for it takes a tenth of a second.
        decoder = None if library.decoder is None else json.loads(library.decoder.__getstate__())
        self._scheme: DecodingScheme = scheme_for(decoder, self.id_to_token, self._decode_all)

    @classmethod
    def from_files(cls, files: TokenizerFiles) -> Tokenizer:
        """Raises ModelSourceError if the files are no tokenizer that the library can read."""
        try:
            library = tokenizers.Tokenizer.from_str(files.tokenizer_json.decode("utf-8"))
        except Exception as error:  # the library raises plain Exception
            raise ModelSourceError(f"the model's tokenizer.json cannot be read: {error}") from error
        # A file may carry the limits of its training run; a server never cuts or pads a prompt behind the client's back.
        library.no_truncation()
        library.no_padding()
        known = library.get_added_tokens_decoder()
        special = {token.content for token in known.values() if token.special}
        # A role makes a token special even where the file forgot to say so (transformers does the same).
        library.add_special_tokens(
            [
                token
                for token in dict.fromkeys(files.special_tokens.values())
                if token not in special and library.token_to_id(token) is not None
            ]
        )
        return cls(library, files)

    @property
    def bos_token_id(self) -> int | None:
        return self.special_ids.get("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        return self.special_ids.get("eos_token")

    @property
    def pad_token_id(self) -> int | None:
        return self.special_ids.get("pad_token")

    def encode(
        self, text: str, *, add_special_tokens: bool = True, allow_special: bool = True, param: str = "prompt"
    ) -> list[int]:
        """The ids of a text; [] for "" unless the model adds something.

        add_special_tokens   put BOS and EOS where the model wants them, never twice. False for text that a chat
                             template made: it writes them itself
        allow_special        False: the text of a special token is ordinary text, not the token
        param                the field that a RequestError names, for text that is not Unicode (a lone surrogate)
        """
        return self.encode_batch(
            [text], add_special_tokens=add_special_tokens, allow_special=allow_special, param=param
        )[0]

    def encode_batch(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool = True,
        allow_special: bool = True,
        param: str = "prompt",
    ) -> list[list[int]]:
        """As `encode`, for several texts; the library spreads them over its threads."""
        for text in texts:
            check_unicode(text, param)
        library = self._library if allow_special else self._without_special()
        if len(texts) == 1:
            rows = [library.encode(texts[0], add_special_tokens=add_special_tokens).ids]
        else:
            encoded = library.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
            rows = [row.ids for row in encoded]
        return [self._framed(ids) for ids in rows] if add_special_tokens else rows

    def encode_texts(self, text: str, second: str | None, cut: Cut) -> tuple[list[int], list[int]]:
        """(ids, token types) of one text or two, with all that the model puts around and between.

        cut   is handed the encoded texts, the second one or None, and how many tokens will be added; it may shorten them
        """
        library = self._library
        parts = [library.encode(one, add_special_tokens=False) for one in (text, second) if one is not None]
        first, other = parts[0], parts[1] if len(parts) > 1 else None
        own = library.num_special_tokens_to_add(other is not None) + bool(self._add_bos) + bool(self._add_eos)
        cut(first, other, own)
        encoded = library.post_process(first, other, add_special_tokens=True)
        ids, types = list(encoded.ids), list(encoded.type_ids)
        framed = self._framed(ids)
        if len(framed) > len(ids):
            before = framed[: len(framed) - len(ids)] != ids[: len(framed) - len(ids)]
            types = [0] * before + types + types[-1:] * (len(framed) - len(ids) - before)
        return framed, types

    def encode_literals(self, text: str, literals: Mapping[str, str], *, param: str = "prompt") -> list[int]:
        """The ids of a text that has its special tokens in it, none added, and in which single characters stand for texts
        that must stay ordinary.

        literals   character -> text. Between two special tokens all is encoded as one text with the texts in their places,
                   so that words are cut as if the text were plain; a part without such a character is encoded as `encode`
                   does it
        """
        if not literals:
            return self.encode(text, add_special_tokens=False, param=param)
        check_unicode(text, param)
        encoded = self._library.encode(text, add_special_tokens=False)
        stand_for = {ord(character): literal for character, literal in literals.items()}
        ids: list[int] = []
        begin, between = 0, 0
        for place, (token, (start, end)) in enumerate(zip(encoded.ids, encoded.offsets, strict=True)):
            if token in self._special:
                ids += self._between(text[begin:start], encoded.ids[between:place], stand_for)
                ids.append(token)
                begin, between = end, place + 1
        return ids + self._between(text[begin:], encoded.ids[between:], stand_for)

    def _between(self, text: str, ids: list[int], stand_for: Mapping[int, str]) -> list[int]:
        plain = text.translate(stand_for)
        if plain == text:
            return ids
        found: list[int] = self._without_special().encode(plain, add_special_tokens=False).ids
        return found

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The whole text. Ids outside the vocabulary have no text. As the library decodes it, but for one thing: with
        byte-fallback vocabularies a bad byte does not take the valid characters beside it with it."""
        kept = [token for token in ids if 0 <= token <= MAX_ID]
        text: str = self._library.decode(kept, skip_special_tokens=skip_special_tokens)
        if self._scheme.library_is_exact or "\ufffd" not in text:
            return text
        decoder = self.incremental_decoder(skip_special_tokens=skip_special_tokens)
        return "".join([*(decoder.push(token) for token in kept), decoder.flush()])

    def incremental_decoder(
        self, *, skip_special_tokens: bool = True, context: Sequence[int] = ()
    ) -> IncrementalDecoder:
        """A decoder for one text. With no context its pieces add up to `decode`; context (the last ids of the prompt)
        tells it that the text goes on, so that a leading space stays."""
        return self._scheme.start(self._special if skip_special_tokens else _NOTHING, context)

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it; None if there is none."""
        return self._library.id_to_token(token_id) if 0 <= token_id <= MAX_ID else None

    def token_bytes(self, token_id: int) -> bytes:
        """What the token alone stands for; it may be a part of a character only. b"" if there is no such token."""
        return self._scheme.alone(token_id)

    def vocabulary(self, size: int) -> list[bytes]:
        """The bytes of ids 0 .. size - 1, b"" for control tokens and for ids that have no token."""
        return [b"" if token in self._special else self.token_bytes(token) for token in range(size)]

    def control_ids(self) -> dict[str, int]:
        """What each control token looks like -> its id."""
        added = self._library.get_added_tokens_decoder()
        return {token.content: token_id for token_id, token in added.items() if token_id in self._special}

    def token_text(self, token_id: int) -> str:
        """The token alone as text; bytes that are no character are U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_to_id(self, token: str) -> int | None:
        return self._library.token_to_id(token)

    def is_special(self, token_id: int) -> bool:
        """A control token, hidden by skip_special_tokens."""
        return token_id in self._special

    def _decode_all(self, ids: Sequence[int]) -> str:
        text: str = self._library.decode(list(ids), skip_special_tokens=False)
        return text

    def _framed(self, ids: list[int]) -> list[int]:
        bos, eos = self.bos_token_id, self.eos_token_id
        if self._add_bos and bos is not None and ids[:1] != [bos]:
            ids = [bos, *ids]
        if self._add_eos and eos is not None and ids[-1:] != [eos]:
            ids = [*ids, eos]
        return ids

    def _without_special(self) -> tokenizers.Tokenizer:
        # The switch belongs to a whole library object, so a second one has it; made only when somebody asks.
        with self._plain_lock:
            if self._plain is None:
                plain = tokenizers.Tokenizer.from_str(self._library.to_str())
                plain.encode_special_tokens = True
                self._plain = plain
            return self._plain


def check_unicode(text: str, param: str) -> None:
    """Raises RequestError naming `param` if the text holds half a surrogate pair, which no encoding can carry."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{param} is not valid Unicode: a lone surrogate at position {error.start}", param=param
        ) from None
