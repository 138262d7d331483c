"""The embedded model itself: its configuration, its tokenizer's ids, its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import transformers
from tokenizers import pre_tokenizers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from jackfield.config.embedded import embedded_chat_template, embedded_config
from jackfield.hookspecs import Shard
from jackfield_models_loaders.gguf_header import GgufHeader, StringArray
from jackfield_models_loaders.gguf_source import GgufSource

pytestmark = pytest.mark.model

CORPUS = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "1234567890 3.14 1,000 0x1F ½ Ⅷ ٣٤",
    "a  2   b    3\t\t4\n\n\n5",
    "   leading and trailing   ",
    "def f(x: int) -> int:\n    return x ** 2  # squared\n\n\tif x == 10:\n\t\tpass\n",
    "😀😃 👨‍👩‍👧‍👦 ✨ é e\u0301 \ufffd \u200b\u00a0",
    "日本語のテキスト、中文测试。한국어 텍스트",
    "Ελληνικά русский עברית العربية हिन्दी ไทย",
    "I'm you're we'll they'd it's DON'T",
    "<|im_start|>system\nYou are 1 bot<|im_end|>\n<|im_start|>user\nHi 42<|im_end|>\n<|endoftext|>",
    "<think>x</think><tool_call>{}</tool_call> <repo_name>r<file_sep>",
    'https://example.org/?a=1&b=22#c [link](x) {"k": [1, 2.5e-3]}',
    "the " * 500,
]


@pytest.fixture(scope="module")
def source(embedded_model: Path) -> GgufSource:
    return GgufSource(embedded_model)


@pytest.fixture(scope="module")
def tokenizer(source: GgufSource) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(source.tokenizer().tokenizer_json.decode())


def test_config_is_the_one_that_the_core_ships(source: GgufSource) -> None:
    assert source.config() == embedded_config()


def test_chat_template_is_the_one_that_the_core_ships(source: GgufSource) -> None:
    assert source.chat_templates() == {"default": embedded_chat_template()}
    assert source.tokenizer().chat_template == embedded_chat_template()


@pytest.mark.slow
def test_header_is_the_gguf_package_s(embedded_model: Path) -> None:
    header, reader = GgufHeader(embedded_model), gguf.GGUFReader(embedded_model)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert set(header.metadata) == set(fields)
    for key, value in header.metadata.items():
        ours = header.strings(value) if isinstance(value, StringArray) else value
        assert (ours.tolist() if isinstance(ours, np.ndarray) else ours) == fields[key].contents(), key
    assert {name: (t.shape, t.offset) for name, t in header.tensors.items()} == {
        t.name: (tuple(int(size) for size in t.shape[::-1]), int(t.data_offset)) for t in reader.tensors
    }


def test_ids_of_the_known_facts(source: GgufSource, tokenizer: tokenizers.Tokenizer) -> None:
    files = source.tokenizer()
    assert (files.add_bos, files.add_eos) == (False, False)
    assert files.special_tokens["bos_token"] == "<|im_start|>"
    assert files.special_tokens["eos_token"] == files.special_tokens["pad_token"] == "<|im_end|>"
    assert files.chat_template is not None
    assert tokenizer.get_vocab_size() == 49152
    assert tokenizer.encode("😀").ids == [10813, 242, 218]
    assert tokenizer.encode("\ufffd").ids == [24211]
    assert tokenizer.encode("").ids == []
    assert tokenizer.encode("1234567890").ids == [tokenizer.token_to_id(digit) for digit in "1234567890"]
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>").ids == [0, 1, 2]
    assert len(tokenizer.encode("<think>").ids) == 3
    assert len(tokenizer.encode("<tool_call>").ids) == 5
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    assert special == set(range(17))


@pytest.fixture(scope="module")
def reference(embedded_model: Path) -> Any:
    """transformers' reading, with the step that it loses."""
    found: Any = transformers.AutoTokenizer.from_pretrained(embedded_model.parent, gguf_file=embedded_model.name)
    found.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return found


@pytest.mark.slow
def test_ids_and_text_are_transformers(tokenizer: tokenizers.Tokenizer, reference: Any) -> None:
    for text in CORPUS:
        ids = tokenizer.encode(text).ids
        assert ids == reference(text, add_special_tokens=False)["input_ids"], text
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.slow
def test_weights_are_transformers(embedded_model: Path, source: GgufSource) -> None:
    config = {key: value for key, value in source.config().items() if key != "model_type"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    theirs = load_gguf_checkpoint(str(embedded_model), return_tensors=True, model_to_load=model)["tensors"]  # type: ignore[no-untyped-call]
    seen = set()
    for weight in source.weights(Shard()):
        data = weight.parts["data"]
        if weight.encoding == "plain":
            values = data.view(np.float32).reshape(weight.shape)
        else:
            values = gguf.quants.dequantize(data, getattr(gguf.GGMLQuantizationType, weight.encoding.upper()))
        np.testing.assert_array_equal(values, theirs[weight.name].numpy(), err_msg=weight.name)
        seen.add(weight.name)
    assert seen == set(theirs) - {"lm_head.weight"}
    assert len(seen) == 272
