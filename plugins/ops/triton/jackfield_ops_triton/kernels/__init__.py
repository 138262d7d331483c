"""The Triton kernels, each with the function that launches it. They know tensors, and nothing of blocks, layers or requests.

Numbers are widened to float32 where they are loaded and rounded where torch's operators round them, so that a kernel and its
plain twin differ by the order of sums and by the last bits of exp, tanh and rsqrt alone.
"""
