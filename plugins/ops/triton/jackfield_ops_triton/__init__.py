"""Operators for NVIDIA GPUs in Triton. Importing it imports neither torch nor triton."""
