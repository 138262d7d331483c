"""`--enable-deterministic-inference`: workers, attention and ops must claim that a row does not depend on its batch."""

from __future__ import annotations

from jackfield.config.errors import either
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.claims import FEATURE, claimed

FLAG = "--enable-deterministic-inference"


class Invariance:
    """What one run asks for. dtype None: not known yet, so any will do."""

    def __init__(self, asked: bool, device: str, dtype: str | None, catalogue: Catalogue) -> None:
        self._asked = asked
        self._device = device
        self._dtype = dtype
        self._catalogue = catalogue

    def problems(self, row: PluginRow) -> list[str]:
        """Why this healthy plugin cannot serve, and which of its kind could."""
        if not self._asked or self._claims(row):
            return []
        rows = self._catalogue.rows(row.kind)
        others = [other.name for other in rows if other.status is Status.OK and self._claims(other)]
        would_do = f"{either(others)} would do" if others else f"no installed {row.kind} plugin would do"
        where = self._device if self._dtype is None else f"{self._device} in {self._dtype}"
        return [f"{FLAG} needs {FEATURE!r}, which it does not declare on {where}; {would_do}"]

    def _claims(self, row: PluginRow) -> bool:
        return row.manifest is not None and claimed(row.manifest.features, self._device, self._dtype)
