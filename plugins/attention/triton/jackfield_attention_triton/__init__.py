"""Attention for NVIDIA GPUs in Triton. Nothing here imports Triton before the backend is made."""
