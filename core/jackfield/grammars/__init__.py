"""What grammar backends share, in pure Python: which JSON schemas are honoured in full, regular expressions, EBNF and structural
tags read into trees. Public: a backend of a stranger's may use it. It imports the contract only, no compiler and no torch.
"""

from __future__ import annotations

from jackfield.grammars.ebnf import Ebnf, read_ebnf
from jackfield.grammars.openai_strict import check_openai_strict
from jackfield.grammars.regex_reader import read_regex
from jackfield.grammars.regex_syntax import regex_text
from jackfield.grammars.schema_rules import SchemaRules, check_schema
from jackfield.grammars.structural_tags import read_structural_tag

__all__ = [
    "Ebnf",
    "SchemaRules",
    "check_openai_strict",
    "check_schema",
    "read_ebnf",
    "read_regex",
    "read_structural_tag",
    "regex_text",
]
