from collections.abc import Callable, Sequence

from jackfield.hookspecs import GrammarBackend

def MyGrammars(vocab_size: int, stop_ids: tuple[int, ...], vocab: Callable[[], Sequence[bytes]]) -> GrammarBackend: ...
