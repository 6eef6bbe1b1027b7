"""The arguments that pipelines pass to their networks: rows of latents, a timestep, embeddings."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.families import NOT_PER_SAMPLE

INPUTS = ("sample", "hidden_states", "x")
"""Names of the latents, if they are not the first positional argument."""

TIMES = ("timestep", "timesteps", "t")
"""Names of the timestep, if it is not the second positional argument."""

CONVENTIONS: tuple[Callable[[float, int], float], ...] = (
    lambda timestep, count: timestep,
    lambda timestep, count: timestep / count,
    lambda timestep, count: 1 - timestep / count,
    lambda timestep, count: count - timestep,
)
"""The network's timestep as a function of the scheduler's timestep and the number `count` of
training timesteps. Stable Diffusion follows the first, Flux the second, and Lumina and Z-Image,
where time runs from noise to image, the third."""

SLACK = 0.004
"""Tolerance of a network's timestep, as a share of its range: bfloat16 has 8 bits."""


def input_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The latents: a tensor, or a list with one for each row."""
    return args[0] if args else kwargs[input_name(kwargs)]


def input_name(kwargs: Mapping[str, Any]) -> str:
    return next(name for name in INPUTS if name in kwargs)


def tensor_of(raw: Any) -> Tensor:
    """The (rows, ...) tensor in a network's input or output."""
    if isinstance(raw, list):
        return torch.stack(raw)
    return raw if isinstance(raw, Tensor) else tensor_of(raw[0])


def in_form_of(raw: Any, tensor: Tensor) -> Any:
    """A network's input or output, with another tensor in it: the inverse of `tensor_of`."""
    if isinstance(raw, Tensor):
        return tensor
    if isinstance(raw, list):
        return list(tensor.unbind())
    if isinstance(raw, tuple):
        return (in_form_of(raw[0], tensor), *raw[1:])
    [name, first] = next(iter(raw.items()))  # a ModelOutput
    return type(raw)(**{**raw, name: in_form_of(first, tensor)})


def only_rows(
    args: tuple[Any, ...], kwargs: dict[str, Any], rows: int, own: slice, times: int = 1
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for the rows `own` of a batch of `rows`, repeated `times` times along it."""
    in_lists = isinstance(input_of(args, kwargs), list)
    return _take(args, rows, own, times, in_lists), _take(kwargs, rows, own, times, in_lists)


def _take(value: Any, rows: int, own: slice, times: int, in_lists: bool) -> Any:
    """`only_rows` of one argument; `in_lists` if batches are lists with an entry for each row."""
    if in_lists and isinstance(value, list) and len(value) == rows:
        return value[own] * times
    if isinstance(value, Tensor):
        if value.ndim == 0 or len(value) < rows or len(value) % rows:
            return value
        each = len(value) // rows  # more than 1 for the frames of a video
        taken = value[own.start * each : own.stop * each]
        return taken if times == 1 else torch.cat([taken] * times)
    if isinstance(value, dict):
        return {
            name: item if name in NOT_PER_SAMPLE else _take(item, rows, own, times, in_lists)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_take(item, rows, own, times, in_lists) for item in value)
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values, tensors or lists of tensors are equal."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other.to(one.device))
    return one is other


def convention_of(
    network_timestep: float, timestep: float, count: int, backwards: bool
) -> Callable[[float, int], float] | None:
    """The one of `CONVENTIONS` that a pipeline follows, or None. Halfway, where both directions
    fit, `backwards` prefers a time that runs from noise to image."""
    ordered = CONVENTIONS[2:] + CONVENTIONS[:2] if backwards else CONVENTIONS
    for convention in ordered:
        slack = SLACK * max(convention(0, count), convention(count, count))
        if abs(network_timestep - convention(timestep, count)) <= slack:
            return convention
    return None


def timestep_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float | None:
    """The network's timestep; None if it gets none, or if rows have different ones."""
    given = args[1] if len(args) > 1 else kwargs.get(_timestep_name(kwargs))
    if not isinstance(given, Tensor | float | int) or isinstance(given, bool):
        return None
    values = set(torch.as_tensor(given).flatten().tolist())
    return float(values.pop()) if len(values) == 1 else None


def with_timestep(
    args: tuple[Any, ...], kwargs: dict[str, Any], timestep: float
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with another timestep, in the shape and dtype of the given one."""

    def like(given: Any) -> Any:
        if isinstance(given, Tensor):
            value = timestep if given.is_floating_point() else round(timestep)
            return torch.full_like(given, value)
        return type(given)(timestep)

    if len(args) > 1:
        return (args[0], like(args[1]), *args[2:]), kwargs
    name = _timestep_name(kwargs)
    return args, {**kwargs, name: like(kwargs[name])}


def _timestep_name(kwargs: Mapping[str, Any]) -> str:
    return next((name for name in TIMES if name in kwargs), TIMES[0])
