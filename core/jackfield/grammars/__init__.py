"""What grammar backends share, in pure Python: which JSON schemas are honoured in full, regular expressions, EBNF and structural
tags read into trees. Public: a backend of a stranger's may use it. It imports the contract only, no compiler and no torch.
"""

from __future__ import annotations
