from __future__ import annotations

import pytest

from jackfield.hookspecs import NHD_PAGED, KVGroup, KVTensors


def test_a_layers_tensor_is_found_by_role_and_id_and_what_is_not_there_is_named() -> None:
    group = KVGroup(name="full", kind="full", layers=(1, 3), num_kv_heads=1, head_size=2, v_head_size=2)
    kv = KVTensors(group=group, layout=NHD_PAGED, page_size=1, tensors={"k": ("k1", "k3"), "v": ("v1", "v3")})  # type: ignore[dict-item]
    assert kv.of("v", 3) == "v3"
    with pytest.raises(ValueError, match=r"KV group 'full' has no layer None; its layers: \(1, 3\)"):
        kv.of("k", None)  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="has no role 'latent'; its roles: k, v"):
        kv.of("latent", 1)
