"""The main process checks grammars; that must not cost it an import of torch or of a compiler."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from jackfield.hookspecs import GrammarContext, GrammarError, GrammarSpec
from tests.unit.grammars.backends import BACKENDS, make
for name in BACKENDS:
    backend = make(name, [b"a", b""], (1,))
    for form, source in (("json_schema", '{"type": "object"}'), ("regex", "a+")):
        backend.check(GrammarSpec(form=form, source=source))
    try:
        backend.check(GrammarSpec(form="json_schema", source='{"type": "strng"}'))
    except GrammarError as wrong:
        print(wrong.keyword)
print(sorted({"torch", "xgrammar", "llguidance", "transformers", "tokenizers"} & set(sys.modules)))
"""


def test_checking_imports_no_compiler_and_no_torch() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["/type", "/type", "[]"]
