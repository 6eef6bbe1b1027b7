"""Similarity of two items: kernels of features, and precomputed similarity matrices."""

from vendi_guidance.kernels.base import Kernel, as_features
from vendi_guidance.kernels.standard import Cosine, Gaussian, Precomputed

__all__ = ["Cosine", "Gaussian", "Kernel", "Precomputed", "as_features"]
