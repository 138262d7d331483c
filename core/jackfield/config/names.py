"""Names of plugins and of their instances, and one use of a plugin that may run several times.

Knows how names are spelt, not which plugins exist.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from jackfield.config.errors import did_you_mean
from jackfield.hookspecs.kinds import KINDS

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")

AUTO = "auto"
"""The word that asks for a choice; no plugin may have this name."""

NONE = "none"
"""The word that asks for no plugin, where a kind can do without; no plugin may have this name."""


def normalise_name(name: object) -> str:
    """The one spelling of a plugin's or a distribution's name: `Flash_Attn` is `flash-attn`. Raises ValueError."""
    if not isinstance(name, str):
        raise ValueError(f"a name must be text, not {type(name).__name__}")
    spelt = re.sub(r"[-_.]+", "-", name.strip()).lower()
    if not _NAME.match(spelt):
        raise ValueError(f"{name!r} is not a name: use letters, digits and single dashes")
    return spelt


def _plugin_choice(value: object) -> str | None:
    if value is None:
        return None
    name = normalise_name(value)
    return None if name == AUTO else name


PluginChoice = Annotated[str | None, BeforeValidator(_plugin_choice)]
"""The name of a plugin; None (or "auto" in a source) leaves the choice to the resolution."""

PluginName = Annotated[str, BeforeValidator(normalise_name)]


def plugin_reference(value: object) -> str:
    """The one spelling of what means either all plugins of a distribution, or one: "acme-policies" or "cache.radix".

    Raises ValueError. What does not begin with a kind is a distribution, whose names may hold dots.
    """
    if isinstance(value, str):
        kind, dot, name = value.strip().partition(".")
        if dot and kind.replace("-", "_") in KINDS:
            return f"{kind.replace('-', '_')}.{normalise_name(name)}"
    return normalise_name(value)


PluginReference = Annotated[str, BeforeValidator(plugin_reference)]


class PluginUse(BaseModel):
    """One use of a plugin of a kind that may run several at once.

    as_ (written `as`) is the instance's name, for two uses of one plugin; it defaults to the plugin's name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)

    plugin: PluginName
    as_: PluginName | None = Field(default=None, alias="as")
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def instance(self) -> str:
        return self.as_ or self.plugin


def as_plugin_use(value: object) -> object:
    """A bare name stands for a use of that plugin under its own name."""
    return {"plugin": value} if isinstance(value, str) else value


def options_key(key: object) -> str:
    """The one spelling of "kind.instance". Raises ValueError, naming the nearest kinds."""
    if not isinstance(key, str) or key.count(".") != 1:
        raise ValueError(f"{key!r} is not of the form 'kind.instance', such as 'attention.torch'")
    kind, instance = key.split(".")
    kind = kind.replace("-", "_")
    if kind not in KINDS:
        by_field = [k.name for k in KINDS.values() if k.field == kind]
        meant = f"; did you mean '{by_field[0]}.{instance}'?" if by_field else did_you_mean(kind, KINDS, noun="kinds")
        raise ValueError(f"{key!r}: there is no kind {kind!r}{meant}")
    return f"{kind}.{normalise_name(instance)}"
