"""What a run gives of a whole prompt in place of next tokens: a vector, or a logit for each label.

One record that a model's `describe` fills and a worker is handed. Knows no tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

EMBEDDING = "embedding"
CLASSIFICATION = "classification"


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """kind        `EMBEDDING` ("embedding"): a vector of the text; `CLASSIFICATION` ("classification"): one logit a label
    width       entries of what comes for a prompt
    whole       all of a prompt's hidden states are needed, or its tokens see what follows them: it is computed in one forward,
                never cut, and neither read from a prefix cache nor kept in one. False: its last hidden state is enough
    normalize   the worker brings vectors to length 1
    labels      classification: the labels' names, `width` of them
    activation  classification: what makes scores of the logits: "softmax" over the labels, "sigmoid" of each, "identity"
    pairs       a prompt may be two texts, told apart by their token types or by a separator alone
    matryoshka  a vector's first entries are a vector of their own (brought to length 1 again if `normalize`)
    dimensions  with `matryoshka`: how many of them; empty: any number
    """

    kind: str
    width: int
    whole: bool = True
    normalize: bool = False
    labels: tuple[str, ...] = ()
    activation: str = "identity"
    pairs: bool = False
    matryoshka: bool = False
    dimensions: tuple[int, ...] = ()
