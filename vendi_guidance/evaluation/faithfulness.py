"""How well images match their prompts, by whatever judges that."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.evaluation.batches import Batch

Judge: TypeAlias = Callable[[Sequence[Image], Sequence[str]], "Sequence[float] | Tensor"]
"""A number for each image, given images and their prompts; more is better."""

Faithfulness: TypeAlias = "str | Sequence[float] | Tensor | Judge"
"""The name of a column, numbers, or a judge."""


def faithfulness_of(
    batch: Batch, given: Faithfulness, n: int, kept: Sequence[int]
) -> tuple[Tensor, dict[str, Any]]:
    """(b,) float64 of the images of a batch, and what gave them, JSON values.

    Args:
        batch: of the b images that could be read.
        given: what judges, or n numbers.
        kept: (b,) which of the n these are.

    Raises:
        ValueError: no prompts, no such column, or not one finite number for each image.
    """
    if isinstance(given, str):
        return _numbers(batch.column(given), len(kept), given), {"name": f"column {given}"}
    if not callable(given):
        return _numbers(given, n, "given")[list(kept)], {"name": "given numbers"}
    name = str(getattr(given, "name", None) or getattr(given, "__name__", type(given).__name__))
    if batch.prompts is None:
        raise ValueError(f"{name} compares images with prompts: give the prompts too")
    parts, start = [], 0
    for images in batch.images.chunks():
        prompts = batch.prompts[start : start + len(images)]
        parts.append(_numbers(given(images, prompts), len(images), name))
        start += len(images)
    return torch.cat(parts), {"name": name}


def _numbers(values: Sequence[float] | Tensor, n: int, whose: str) -> Tensor:
    try:
        numbers = torch.as_tensor(values).detach().cpu().double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the faithfulness {whose} is not made of numbers: {error}") from None
    if numbers.shape != (n,):
        shape = tuple(numbers.shape)
        raise ValueError(
            f"the faithfulness {whose} has shape {shape}: give {n}, one for each image"
        )
    if not numbers.isfinite().all():
        raise ValueError(f"the faithfulness {whose} holds NaN or infinity")
    return numbers
