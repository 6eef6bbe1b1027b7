"""Similarity of two items: kernels of features, and precomputed similarity matrices."""
