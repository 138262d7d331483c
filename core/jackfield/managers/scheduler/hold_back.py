"""Hold-back of twins: a waiting request whose next uncached tokens are being computed by a running prefill waits for that
prefill's commit instead of computing the same KV a second time. Knows token prefixes, no tables."""

from __future__ import annotations

from jackfield.managers.scheduler.request import Request

_Key = tuple[bytes, bytes]


class HoldBack:
    """Index over the running prefills: (namespace, the tokens cached so far and `threshold` more) -> how many compute them.

    Two requests that share the cached part and the next `threshold` tokens have the same key, whatever follows; the key
    moves on with each committed chunk. It switches itself off when the cache takes nothing of a whole page offered,
    because such a cache shares nothing to wait for.
    """

    def __init__(self, threshold: int, page_size: int) -> None:
        self._tokens = -(-threshold // page_size) * page_size
        self._page_size = page_size
        self._running: dict[_Key, int] = {}
        self._on = threshold > 0

    @property
    def active(self) -> bool:
        """Whether `blocks` could be True for anybody."""
        return bool(self._running)

    def blocks(self, request: Request, cached: int) -> bool:
        """Whether a running prefill computes the tokens that follow `cached` in this waiting request's prompt.

        cached: what the prefix cache holds for it, at most its match limit.
        """
        end = cached + self._tokens
        # Its own last token is always computed, so a saving needs more than `end` tokens.
        return len(request.prompt) > end and _key(request, end) in self._running

    def watch(self, request: Request, cached: int) -> None:
        """This request's prefill runs, and `cached` of its tokens are in the cache; again after each chunk's commit."""
        self.forget(request)
        end = cached + self._tokens
        if self._on and len(request.prompt) >= end:
            key = _key(request, end)
            self._running[key] = self._running.get(key, 0) + 1
            request.watched = key

    def forget(self, request: Request) -> None:
        """Its prefill is over, one way or the other."""
        key, request.watched = request.watched, None
        if key is None:
            return
        left = self._running[key] - 1
        if left:
            self._running[key] = left
        else:
            del self._running[key]

    def learned(self, offered: int, taken: int) -> None:
        """The cache was offered the KV of `offered` tokens in a commit and now owns `taken` of them."""
        if offered >= self._page_size and taken == 0:
            self._on = False
            # Keys that are there go with their requests; nothing is added any more.


def _key(request: Request, end: int) -> _Key:
    return request.namespace, request.prompt[:end].tobytes()
