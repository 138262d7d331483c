"""Which rows and columns a tensor-parallel rank holds, and whether there is an even part for each. No torch; arithmetic only."""

from __future__ import annotations

from jackfield.hookspecs import Shard, UnsupportedModel

Span = tuple[int, int]
"""First and one past the last."""


def check_decoder_shares(*, num_heads: int, num_kv_heads: int, intermediate_size: int, shard: Shard) -> None:
    """Refuse a number of ranks that cannot share a decoder, naming the config entries and the numbers that can."""
    if shard.pp_size != 1:
        raise UnsupportedModel(f"pipeline parallelism ({shard.pp_size} stages) is not supported by this model code")

    def shares(ranks: int) -> bool:
        even_kv = num_kv_heads % ranks == 0 or ranks % num_kv_heads == 0
        return num_heads % ranks == 0 and even_kv and intermediate_size % ranks == 0

    if not shares(shard.tp_size):
        fitting = [str(ranks) for ranks in range(1, num_heads + 1) if shares(ranks)]
        raise UnsupportedModel(
            f"num_attention_heads, num_key_value_heads, intermediate_size: {num_heads} heads / {num_kv_heads} KV heads and "
            f"{intermediate_size} inner features cannot be shared by {shard.tp_size} tensor-parallel ranks; sizes that can: "
            f"{', '.join(fitting)}"
        )


def even_share(total: int, shard: Shard, what: str) -> Span:
    """The rank's part of something that must divide evenly. ValueError names it if it does not."""
    if total % shard.tp_size:
        raise ValueError(f"{what}: {total} cannot be shared evenly by {shard.tp_size} tensor-parallel ranks")
    each = total // shard.tp_size
    return shard.tp_rank * each, (shard.tp_rank + 1) * each


def vocab_share(vocab_size: int, shard: Shard) -> Span:
    """The rank's part of the vocabulary; the last ranks hold fewer when it does not divide."""
    each = -(-vocab_size // shard.tp_size)
    return min(shard.tp_rank * each, vocab_size), min((shard.tp_rank + 1) * each, vocab_size)


def kv_head_share(total_kv_heads: int, shard: Shard) -> Span:
    """The rank's key/value heads: an even part, or one head that neighbouring ranks share when there are more ranks."""
    if total_kv_heads >= shard.tp_size:
        return even_share(total_kv_heads, shard, "key/value heads")
    if shard.tp_size % total_kv_heads:
        raise ValueError(
            f"key/value heads: {total_kv_heads} cannot be shared evenly by {shard.tp_size} tensor-parallel ranks"
        )
    head = shard.tp_rank * total_kv_heads // shard.tp_size
    return head, head + 1


def scaled(span: Span, size: int) -> Span:
    """A span of heads as a span of their rows."""
    return span[0] * size, span[1] * size
