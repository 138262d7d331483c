"""The claim "batch_invariant" in a manifest's features: a row's result does not depend on its batch.

Bare, it is made for every device and dtype that the plugin lists; "batch_invariant:<device>:<dtype>" is for one pair.
"""

from __future__ import annotations

from collections.abc import Sequence

FEATURE = "batch_invariant"


def claim_problems(features: Sequence[str]) -> list[str]:
    """Claims that are written wrongly."""
    return [
        f"the feature {feature!r} has neither the form {FEATURE!r} nor '{FEATURE}:<device>:<dtype>'"
        for feature in features
        if feature.split(":")[0] == FEATURE and feature.count(":") not in (0, 2)
    ]


def claimed(features: Sequence[str], device: str, dtype: str | None) -> bool:
    """Whether the claim is made for this device and dtype (None: for any one)."""
    for feature in features:
        name, *pair = feature.split(":")
        if name == FEATURE and (not pair or (pair[0] == device and dtype in (None, pair[1]))):
            return True
    return False
