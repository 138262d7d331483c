"""Whether this core and a plugin's manifest fit: the contract of each kind that it names, and the range of cores that it takes.

Knows versions alone, not what is in a contract. `docs/versioning.md` is the policy.
"""

from __future__ import annotations

import re

from jackfield import __version__
from jackfield.config.errors import did_you_mean
from jackfield.hookspecs.kinds import KINDS, Kind
from jackfield.stack.discovery.manifest import ManifestRow

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)")


def incompatibilities(row: ManifestRow, core: str = __version__) -> list[str]:
    """Why this core cannot serve a plugin with such a manifest, each with both versions and a remedy; empty: it can."""
    problems = []
    own = KINDS[row.kind]
    if own.name not in row.contract:
        problems.append(
            f"its manifest names no contract version for {own.name!r}: write contract = "
            f'{{ {own.name} = "{own.contract_version}" }}'
        )
    for name, wanted in row.contract.items():
        problem = _contract_problem(name, wanted)
        if problem is not None:
            problems.append(problem)
    if row.core is not None:
        from packaging.specifiers import SpecifierSet  # not everybody who lists plugins needs it

        if not SpecifierSet(row.core).contains(core, prereleases=True):
            problems.append(
                f"it asks for jackfield {row.core} (`core` in its manifest), this is jackfield {core}: install a jackfield in "
                "that range, or another version of the plugin"
            )
    return problems


def _contract_problem(name: str, wanted: str) -> str | None:
    kind = KINDS.get(name)
    if kind is None:
        return f"its manifest names the contract of a kind {name!r}, which this core does not know{did_you_mean(name, KINDS)}"
    match = _VERSION.fullmatch(wanted)
    if match is None:
        return (
            f'its {name} contract {wanted!r} is not of the form "major.minor"; this core speaks {kind.contract_version}'
        )
    version = (int(match[1]), int(match[2]))
    if speaks(kind, version):
        return None
    remedy = "upgrade jackfield" if version > kind.contract else "upgrade the plugin"
    return f"it was written for the {name} contract {wanted}, this core speaks {kind.contract_version}: {remedy}"


def speaks(kind: Kind, version: tuple[int, int]) -> bool:
    """Whether a plugin for this version of the kind's contract runs: major equal (for 0.x also minor equal), and the core's minor
    at least the plugin's."""
    (major, minor), (core_major, core_minor) = version, kind.contract
    return major == core_major and (minor == core_minor if major == 0 else minor <= core_minor)
