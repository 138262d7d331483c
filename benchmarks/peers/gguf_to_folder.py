"""Make a Hugging Face folder in bfloat16 of a Llama's GGUF file, for the engines that read no GGUF.

    python gguf_to_folder.py FILE.gguf FOLDER

Needs torch, transformers 5, accelerate and gguf. The vocabulary, special tokens and chat template are the file's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FROM_HERE = ("_name_or_path", "name_or_path", "is_local", "local_files_only")
"""Keys that say where the file lay."""


def convert(source: Path, folder: Path) -> None:
    import torch
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    fields = GGUFReader(source).fields

    def said(key: str) -> Any:
        return fields[key].contents()

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    # Packed weights cannot be saved, and stay packed unless told otherwise.
    unpacked = GgufConfig(gguf_file=source.name, dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16, quantization_config=unpacked
    )
    tokens = said("tokenizer.ggml.tokens")
    ids = {
        name: said(f"tokenizer.ggml.{key}_token_id")
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    for name, number in ids.items():
        setattr(tokenizer, f"{name}_token", tokens[number])
        for config in (model.config, model.generation_config):
            setattr(config, f"{name}_token_id", number)
    tokenizer.chat_template = said("tokenizer.chat_template")
    tokenizer.model_max_length = said("llama.context_length")
    if said("tokenizer.ggml.pre") == "smollm":  # each digit by itself, which transformers' reading of GGUF drops
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "tokenizer_config.json"):
        told = json.loads((folder / name).read_text())
        for key in FROM_HERE:
            told.pop(key, None)
        if "tokenizer_class" in told:
            told["tokenizer_class"] = (
                "PreTrainedTokenizerFast"  # older transformers, which peers bring, know no newer name
            )
        (folder / name).write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    convert(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
