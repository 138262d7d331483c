"""JSON Schema's formats as regular expressions, exact where that is possible.

A format is honoured by its expression, whatever the backend: what a library takes for a date of its own differs from
library to library, and most take 30 February. Each expression fits valid texts only; where a format's own rules reach
further than an automaton of reasonable size (lengths of whole host names, every odd mail address), it fits fewer of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"  # no 0000: see _YEAR
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    f"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
# Without leap seconds, which are valid on a few days of history only.
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_CLOCK = "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)"
_DAYS = "(?:[0-9]{1,9}D|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?)"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?"
_HOST = f"{_LABEL}(?:[.]{_LABEL}){{0,7}}"  # at most 247 characters of the 253 that are allowed
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]"
_H16 = f"{_HEX}{{1,4}}"
_IPV6 = "|".join(
    [
        f"(?:{_H16}:){{7}}{_H16}",
        f"(?:{_H16}:){{1,7}}:",
        *[f"(?:{_H16}:){{1,{7 - after}}}(?::{_H16}){{1,{after}}}" for after in range(1, 7)],
        f":(?::{_H16}){{1,7}}",
        "::",
    ]
)
_PCHAR = f"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%{_HEX}{{2}})"
_QUERY = f"(?:{_PCHAR}|[/?])*"
_URI = (
    f"[A-Za-z][A-Za-z0-9+.-]{{0,30}}:(?://(?:{_HOST})(?::[0-9]{{1,5}})?(?:/{_PCHAR}*)*"
    f"|/(?:{_PCHAR}+(?:/{_PCHAR}*)*)?|{_PCHAR}+(?:/{_PCHAR}*)*)(?:[?]{_QUERY})?(?:#{_QUERY})?"
)

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "date": _DATE,
        "time": _TIME,
        "date-time": f"{_DATE}T{_TIME}",
        "duration": f"P(?:[0-9]{{1,9}}W|{_DAYS}(?:{_CLOCK})?|{_CLOCK})",
        "email": f"{_ATOM}(?:[.]{_ATOM}){{0,2}}@{_HOST}",
        "hostname": _HOST,
        "ipv4": f"{_BYTE}(?:[.]{_BYTE}){{3}}",
        "ipv6": f"(?:{_IPV6})",
        "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
        "uri": _URI,
    }
)
"""Format -> the pattern of the whole text, in the dialect of `regex_syntax`, without anchors."""
