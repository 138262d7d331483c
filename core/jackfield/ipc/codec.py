"""Bytes of a message: msgpack, closed tagged types. An unknown type or a malformed frame is one error, in one place."""

from __future__ import annotations

from typing import Any

import msgspec


class BadMessage(Exception):
    """A frame that is not one of the messages expected here."""


class Codec:
    """Encodes any message; decodes only those of `types` (a union of `Message` classes)."""

    def __init__(self, types: Any) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(types)

    def encode(self, message: Any) -> bytes:
        return self._encoder.encode(message)

    def decode(self, frame: bytes) -> Any:
        try:
            return self._decoder.decode(frame)
        except msgspec.MsgspecError as error:
            raise BadMessage(
                f"a frame of {len(frame)} bytes is not a message that is expected here: {error}"
            ) from error
