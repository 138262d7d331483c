"""Records the contract of each kind as it is now, under the version that it has: `python -m tests.contract.record`.

Never writes over what is recorded of a frozen version (1.0 and later): raise the version in `hookspecs/kinds.py` instead.
`--unreleased` does, for a version that nobody has been given yet.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jackfield.hookspecs import KINDS
from tests.contract.changes import Version, changes, problems
from tests.contract.facts import Facts, facts_of, read, written

FOLDER = Path(__file__).parent / "recorded"


def recorded(kind: str) -> dict[Version, Facts]:
    """All that was ever recorded of a kind."""
    found = {}
    for file in FOLDER.glob(f"{kind}-*.txt"):
        major, minor = file.stem.removeprefix(f"{kind}-").split(".")
        found[int(major), int(minor)] = read(file.read_text())
    return found


def main() -> int:
    refused = 0
    FOLDER.mkdir(exist_ok=True)
    for name, kind in KINDS.items():
        before, now = recorded(name), facts_of(name)
        frozen = kind.contract[0] > 0 and "--unreleased" not in sys.argv
        if frozen and kind.contract in before and changes(before[kind.contract], now):
            print(f"{name}: {'; '.join(problems(kind.contract, now, before))}", file=sys.stderr)
            refused += 1
        elif before.get(kind.contract) != now:
            (FOLDER / f"{name}-{kind.contract_version}.txt").write_text(written(now))
            print(f"{name} {kind.contract_version}: recorded")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
