"""Files of windows: safetensors with a JSON header.

`latents` and `prompts` have the samples of the window's current shape, the oldest first;
`latents_1`, `prompts_1` and so on those of its other shapes.
"""

from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.storage.tensors import load_tensors, save_tensors

FORMAT = "vendi-guidance window"
VERSION = 1
VERSION_OF_SHAPES = 2
"""The version of files with samples of several shapes."""


OfShape = tuple[tuple[int, ...], Tensor, Tensor | None]
"""A shape with (n, D) features and (n, m) prompt embeddings, or None, of its samples."""


def write_window(path: Path, size: int, dtype: torch.dtype, samples: list[OfShape]) -> None:
    """Write a window: its size, the dtype of its features, and its samples."""
    shapes: list[Any] = [shape for shape, *_ in samples]
    first, others = next(iter(shapes), None), shapes[1:]
    header = {
        "format": FORMAT,
        "version": VERSION_OF_SHAPES if others else VERSION,
        "size": size,
        "latent_shape": first,
        "dtype": str(dtype).removeprefix("torch."),
        **({"other_shapes": others} if others else {}),
    }
    tensors: dict[str, Tensor | None] = {"latents": torch.empty(0, 0)}
    for number, (_, *tensors_of_shape) in enumerate(samples):
        tensors |= zip(_names(number), tensors_of_shape, strict=True)
    save_tensors(path, tensors, header)


def read_window(path: Path, largest: int | None) -> tuple[int, torch.dtype, list[OfShape]]:
    """Read what `write_window` wrote. Raises as `SlidingWindow.load` does."""
    header, tensors = load_tensors(path)
    if reason := _misfit(header, tensors):
        raise ValueError(f"{path} is not a window this version can read: {reason}")
    size, shapes = header["size"], _shapes(header)
    total = size * max(1, len(shapes))
    if largest is not None and total > largest:
        raise ValueError(f"{path} is a window of size {total}, beyond {largest}")
    names = map(_names, range(len(shapes)))
    samples = [
        (tuple(shape), tensors[latents], tensors.get(prompts))
        for shape, (latents, prompts) in zip(shapes, names, strict=True)
    ]
    return size, getattr(torch, header["dtype"]), samples


def _names(number: int) -> tuple[str, str]:
    """The names of the tensors of a file's n-th shape."""
    return (f"latents_{number}", f"prompts_{number}") if number else ("latents", "prompts")


def _shapes(header: dict[str, Any]) -> list[Any]:
    """The shapes of a file's samples."""
    shapes = [header.get("latent_shape"), *header.get("other_shapes", [])]
    return [] if shapes == [None] else shapes


def _misfit(header: Any, tensors: dict[str, Tensor]) -> str | None:
    """Why a file's content is not a window, or None."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return f"its header does not say {FORMAT!r}"
    if header.get("version") not in (VERSION, VERSION_OF_SHAPES):
        return f"it has version {header.get('version')}, this is {VERSION_OF_SHAPES}"
    if not _is_count(header.get("size")):
        return f"its size is {header.get('size')}"
    if header.get("dtype") not in ("float16", "bfloat16", "float32", "float64"):
        return f"its dtype is {header.get('dtype')}"
    if not isinstance(header.get("other_shapes", []), list):
        return f"its other shapes are {header['other_shapes']}"
    if "latents" not in tensors:
        return "it holds no latents"
    if not _shapes(header):
        return None if tensors["latents"].numel() == 0 else "its latents have no shape"
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.ndim != 2 or tensor.shape[1] == 0:
            return f"its {name} are {tensor.dtype} of shape {tuple(tensor.shape)}"
    for number, shape in enumerate(_shapes(header)):
        latents, prompts = map(tensors.get, _names(number))
        if not isinstance(shape, list) or not all(map(_is_count, shape)):
            return f"its latents have shape {shape}"
        if latents is None or latents.shape[1] != prod(shape) or len(latents) > header["size"]:
            return f"its latents of shape {shape} do not fit its header {header}"
        if prompts is not None and len(prompts) != len(latents):
            return f"prompts of shape {tuple(prompts.shape)} do not fit {len(latents)} latents"
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63
