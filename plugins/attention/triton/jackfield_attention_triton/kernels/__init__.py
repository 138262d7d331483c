"""The device code. A kernel's module knows tensors and block sizes; nothing of batches, layers or plans."""
