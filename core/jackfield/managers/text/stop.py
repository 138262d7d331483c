"""Finds stop strings and stop expressions in a text that arrives in parts, and holds back no more than it must.

Knows text only: not tokens, not requests. Cost: linear in the text, times the number of stop strings at worst; for an
expression, a search in its longest match and the new part.
"""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.managers.text.stop_regex import StopRegex


class StopMatcher:
    """The match that completes first in the text wins; of several that complete with the same character, the longest
    (which is the one that starts earliest), and of two alike the string. How the text is cut into parts makes no difference.

    Held back is exactly the longest end of the text that is the beginning of some stop string; for an expression, one
    character less than its longest match.

    matched        the string, or the expression's pattern, that ended the text
    matched_text   what of the text matched
    """

    def __init__(self, stops: Sequence[str], regexes: Sequence[StopRegex] = ()) -> None:
        if any(not stop for stop in stops):
            raise ValueError("an empty stop string would end every text at its beginning")
        self._scanners = [_Scanner(stop) for stop in stops]
        self._regexes = regexes
        self._reach = max((regex.longest - 1 for regex in regexes), default=0)
        self._held = ""
        self.matched: str | None = None
        self.matched_text = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """(text that may be shown, what matched or None). What follows a match is dropped, the match itself included; after
        a match nothing is shown any more."""
        if self.matched is not None:
            return "", self.matched
        end = len(text)
        for scanner in self._scanners:
            found = scanner.scan(text, end)
            if found is not None and (self.matched is None or found < end or len(scanner.stop) > len(self.matched)):
                end, self.matched = found, scanner.stop
                self.matched_text = scanner.stop
        whole = self._held + text[:end]
        for regex in self._regexes:
            from_ = max(0, len(self._held) - regex.longest + 1)
            span = regex.first_match(whole[from_:])
            if span is None:
                continue
            first, last = span[0] + from_, span[1] + from_
            if self.matched is None or last < len(whole) or last - first > len(self.matched_text):
                whole = whole[:last]
                self.matched, self.matched_text = regex.pattern, whole[first:]
        if self.matched is not None:
            self._held = ""
            return whole[: len(whole) - len(self.matched_text)], self.matched
        keep = max(0, len(whole) - max([self._reach, *(scanner.state for scanner in self._scanners)]))
        self._held = whole[keep:]
        return whole[:keep], None

    def flush(self) -> str:
        """The text has ended: what was held back belongs to it after all."""
        held, self._held = self._held, ""
        for scanner in self._scanners:
            scanner.state = 0
        return held


class _Scanner:
    """Knuth-Morris-Pratt for one stop string. state: how much of its beginning the text so far ends with.

    One automaton over all strings would save a factor, but for strings as long as a client may send it needs megabytes
    a request; this needs one number a character.
    """

    __slots__ = ("_border", "state", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        # _border[i]: length of the longest proper beginning of stop[:i + 1] that is also its end.
        self._border = [0] * len(stop)
        length = 0
        for i in range(1, len(stop)):
            while length and stop[i] != stop[length]:
                length = self._border[length - 1]
            if stop[i] == stop[length]:
                length += 1
            self._border[i] = length

    def scan(self, text: str, end: int) -> int | None:
        """Read text[:end]. Returns the position after the first completion, or None."""
        stop, state, border = self.stop, self.state, self._border
        position = 0
        while position < end:
            if state == 0:
                position = text.find(stop[0], position, end)
                if position < 0:
                    break
                state = 1
            else:
                while state and text[position] != stop[state]:
                    state = border[state - 1]
                if text[position] == stop[state]:
                    state += 1
            position += 1
            if state == len(stop):
                return position
        self.state = state
        return None
