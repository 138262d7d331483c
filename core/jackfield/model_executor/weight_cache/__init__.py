"""Packed weights on disk, so that a later start maps what an earlier one made.

`kept` is what loading sees, `directory` the files in one place, `packed_file` the bytes of one. Nothing here may keep a model
from loading: whatever goes wrong is a warning, and the weights are packed anew.
"""
