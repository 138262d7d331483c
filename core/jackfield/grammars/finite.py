"""Which parts of a schema or a grammar have an end: each may require others, and one that never comes out of its own
requirements fits nothing finite. Linear in the number of requirements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable


class Finite:
    """Items by name. An item is met once each of its requirements is; a requirement, once any of its options is."""

    def __init__(self) -> None:
        self._unmet: dict[str, int] = {}  # item -> how many of its requirements are not met
        self._uses: defaultdict[str, list[int]] = defaultdict(list)  # item -> the requirements that it would meet
        self._owners: list[str] = []  # requirement -> the item that has it

    def add(self, item: str) -> None:
        self._unmet.setdefault(item, 0)

    def require(self, item: str, options: Iterable[str]) -> None:
        """Options need not be added yet. None at all: never met."""
        self.add(item)
        self._unmet[item] += 1
        for option in options:
            self._uses[option].append(len(self._owners))
        self._owners.append(item)

    def met(self) -> set[str]:
        left = dict(self._unmet)
        done = [False] * len(self._owners)
        ready = [item for item, count in left.items() if not count]
        found = set(ready)
        while ready:
            for number in self._uses[ready.pop()]:
                if done[number]:
                    continue
                done[number] = True
                owner = self._owners[number]
                left[owner] -= 1
                if not left[owner]:
                    ready.append(owner)
                    found.add(owner)
        return found
