"""What pipelines pass to their networks: rows of latents, a timestep, and what goes with them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.families import NOT_PER_SAMPLE

INPUTS = ("sample", "hidden_states", "x")
"""What they call the latents, if they are not the first argument."""

TIMES = ("timestep", "timesteps", "t")
"""What they call the timestep, if it is not the second argument."""

CONVENTIONS: tuple[Callable[[float, int], float], ...] = (
    lambda timestep, count: timestep,
    lambda timestep, count: timestep / count,
    lambda timestep, count: 1 - timestep / count,
    lambda timestep, count: count - timestep,
)
"""What networks are told for a scheduler's timestep, of `count` in training. Those of Stable
Diffusion follow the first, of Flux the second; of Lumina and Z-Image, whose time runs from noise to
image, the third."""

SLACK = 0.004
"""How far the timestep a network is told may be off, as a share of all: bfloat16 has 8 bits."""


def input_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The latents: a tensor, or a list with one for each row."""
    return args[0] if args else kwargs[input_name(kwargs)]


def input_name(kwargs: Mapping[str, Any]) -> str:
    return next(name for name in INPUTS if name in kwargs)


def tensor_of(raw: Any) -> Tensor:
    """The tensor in what a network is given or returns, (rows, ...)."""
    if isinstance(raw, list):
        return torch.stack(raw)
    return raw if isinstance(raw, Tensor) else tensor_of(raw[0])


def in_form_of(raw: Any, tensor: Tensor) -> Any:
    """What a network is given or returns, with another tensor in it."""
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
    """The arguments with the rows `own` only, all of them so many times."""
    in_lists = isinstance(input_of(args, kwargs), list)
    return _take(args, rows, own, times, in_lists), _take(kwargs, rows, own, times, in_lists)


def _take(value: Any, rows: int, own: slice, times: int, in_lists: bool) -> Any:
    """An argument, or all in a tuple or dictionary, with the rows `own` only; `in_lists` if rows
    are lists' entries."""
    if in_lists and isinstance(value, list) and len(value) == rows:
        return value[own] * times
    if isinstance(value, Tensor):
        if value.ndim == 0 or len(value) < rows or len(value) % rows:
            return value
        each = len(value) // rows  # frames of a video, for one
        taken = value[own.start * each : own.stop * each]
        return taken if times == 1 else torch.cat([taken] * times)
    if isinstance(value, dict):
        return {
            name: one if name in NOT_PER_SAMPLE else _take(one, rows, own, times, in_lists)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_take(one, rows, own, times, in_lists) for one in value)
    return value


def convention_of(
    told: float, timestep: float, count: int, backwards: bool
) -> Callable[[float, int], float] | None:
    """Which of `CONVENTIONS` a pipeline follows; None if it follows none of them.

    Args:
        told: what it tells its network for `timestep`.
        count: how many timesteps the network was trained with.
        backwards: take a time from noise to image for likelier; half-way both are the same.
    """
    ordered = CONVENTIONS[2:] + CONVENTIONS[:2] if backwards else CONVENTIONS
    for convention in ordered:
        slack = SLACK * max(convention(0, count), convention(count, count))
        if abs(told - convention(timestep, count)) <= slack:
            return convention
    return None


def timestep_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> float | None:
    """What the network is told; None if that is nothing, or not the same for all of a batch."""
    told = (
        args[1] if len(args) > 1 else next((kwargs[name] for name in TIMES if name in kwargs), None)
    )
    if not isinstance(told, Tensor | float | int) or isinstance(told, bool):
        return None
    values = torch.as_tensor(told).flatten().tolist()
    return float(values[0]) if len({*values}) == 1 else None


def with_timestep(
    args: tuple[Any, ...], kwargs: dict[str, Any], timestep: float
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with another timestep, in the shape and dtype of theirs."""

    def like(told: Any) -> Any:
        if isinstance(told, Tensor):
            value = timestep if told.is_floating_point() else round(timestep)
            return torch.full_like(told, value)
        return type(told)(timestep)

    if len(args) > 1:
        return (args[0], like(args[1]), *args[2:]), kwargs
    name = next(name for name in TIMES if name in kwargs)
    return args, {**kwargs, name: like(kwargs[name])}
