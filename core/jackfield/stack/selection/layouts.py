"""Which KV layout a run uses: the first, in the core's order, that the attention plugins accept and the operators know."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs.kv import CORE_LAYOUTS, KVLayout
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.manifest import ANY_LAYOUT


def known_layouts(catalogue: Catalogue) -> dict[str, KVLayout]:
    """The core's layouts in its order, then those that manifests declare, by name.

    A row in conflict, broken or incompatible declares nothing: one name could have two meanings.
    """
    declared = {layout.name: layout for row in catalogue if row.status is Status.OK for layout in row.layouts}
    return dict(CORE_LAYOUTS) | {name: declared[name] for name in sorted(declared) if name not in CORE_LAYOUTS}


def agree(common: Sequence[str], ops: PluginRow | None) -> tuple[str, str]:
    """The layout among those that attention accepts (never empty), and why.

    Operators that do not know the layout leave the KV write to attention, so they weigh in without a veto.
    """
    written = () if ops is None or ops.manifest is None else ops.manifest.layouts
    if ops is None or not written or ANY_LAYOUT in written:
        return common[0], "the first that attention accepts"
    for name in common:
        if name in written:
            return name, f"the first that attention accepts and ops {ops.name!r} can write"
    return common[0], f"the first that attention accepts; ops {ops.name!r} cannot write it and leaves that to attention"
