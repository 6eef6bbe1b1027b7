"""Kernels of other things than rows of numbers: a matrix at hand, any function of pairs, texts.

They keep the things and compare row numbers: `bind` returns those as (n, 1) features, so that
whatever picks out rows of features picks out things too.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from vendi_guidance.kernels import Kernel

Similarity: TypeAlias = "Kernel | Callable[[Any, Any], float]"


def as_kernel(similarity: Similarity) -> Kernel:
    return similarity
