"""Files of windows: safetensors with a JSON header.

The header has the shapes of the samples, that of the last sample first. `latents_N` and `prompts_N`
are the samples of the shape at place N, the oldest first.
"""

from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.storage.tensors import load_tensors, save_tensors

FORMAT = "vendi-guidance window"
VERSION = 3

OfShape = tuple[tuple[int, ...], Tensor, Tensor | None]
"""A shape with (n, D) features and (n, m) prompt embeddings, or None, of its samples."""


def write_window(path: Path, size: int, dtype: torch.dtype, samples: list[OfShape]) -> None:
    """Write a window: its size, the dtype of its features, and its samples."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "size": size,
        "dtype": str(dtype).removeprefix("torch."),
        "shapes": [shape for shape, *_ in samples],
    }
    tensors: dict[str, Tensor | None] = {}
    for place, (_, latents, prompts) in enumerate(samples):
        tensors |= {f"latents_{place}": latents, f"prompts_{place}": prompts}
    save_tensors(path, tensors, header)


def read_window(path: Path, largest: int | None) -> tuple[int, torch.dtype, list[OfShape]]:
    """Read what `write_window` wrote. Raises as `SlidingWindow.load` does."""
    header, tensors = load_tensors(path)
    if reason := _misfit(header, tensors):
        raise ValueError(f"{path} is not a window this version can read: {reason}")
    size, shapes = header["size"], header["shapes"]
    total = size * max(1, len(shapes))
    if largest is not None and total > largest:
        raise ValueError(f"{path} is a window of size {total}, beyond {largest}")
    samples = [
        (tuple(shape), tensors[f"latents_{place}"], tensors.get(f"prompts_{place}"))
        for place, shape in enumerate(shapes)
    ]
    return size, getattr(torch, header["dtype"]), samples


def _misfit(header: Any, tensors: dict[str, Tensor]) -> str | None:
    """Why a file's content is not a window, or None."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return f"its header does not say {FORMAT!r}"
    if header.get("version") != VERSION:
        return f"it has version {header.get('version')}, this is {VERSION}"
    if not _is_count(header.get("size")):
        return f"its size is {header.get('size')}"
    if header.get("dtype") not in ("float16", "bfloat16", "float32", "float64"):
        return f"its dtype is {header.get('dtype')}"
    if not isinstance(header.get("shapes"), list):
        return f"its shapes are {header.get('shapes')}"
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.ndim != 2 or tensor.shape[1] == 0:
            return f"its {name} are {tensor.dtype} of shape {tuple(tensor.shape)}"
    for place, shape in enumerate(header["shapes"]):
        latents, prompts = tensors.get(f"latents_{place}"), tensors.get(f"prompts_{place}")
        if not isinstance(shape, list) or not all(map(_is_count, shape)):
            return f"its latents have shape {shape}"
        if latents is None or latents.shape[1] != prod(shape) or len(latents) > header["size"]:
            return f"its latents of shape {shape} do not fit its header {header}"
        if prompts is not None and len(prompts) != len(latents):
            return f"prompts of shape {tuple(prompts.shape)} do not fit {len(latents)} latents"
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63
