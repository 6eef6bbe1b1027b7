"""The arguments that pipelines pass to their networks: rows of latents, a timestep, embeddings."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

NOT_PER_SAMPLE = ("img_ids", "txt_ids", "image_rotary_emb", "freqs_cis")
"""Network arguments with positions: they have no batch dimension, whatever their length. Flux,
Hunyuan, Lumina and their successors take them."""

INPUTS = ("sample", "hidden_states", "x")
"""Names of the latents."""

TIMES = ("timestep", "timesteps", "t")
"""Names of the timestep."""

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


def by_name(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of a module by their names: those of the network inside, if the
    module is a wrapper that takes any arguments, such as a `PeftModel`."""
    named = map(_parameters, map(type, uncompiled(module).modules()))
    return {**dict(zip(next(filter(None, named), ()), args, strict=False)), **kwargs}


@cache
def _parameters(kind: type[nn.Module]) -> tuple[str, ...]:
    """The names of the parameters of a class's `forward`, without the first; none if it takes any
    arguments."""
    _, *rest = signature(kind.forward).parameters.values()
    takes_any = any(it.kind is Parameter.VAR_POSITIONAL for it in rest)
    return () if takes_any else tuple(it.name for it in rest)


def uncompiled(module: nn.Module) -> nn.Module:
    """The network inside the wrapper that `torch.compile` returns."""
    return getattr(module, "_orig_mod", module)


def input_of(given: Mapping[str, Any]) -> Any:
    """The latents: a tensor, or a list with one for each row."""
    return given[_input_in(given)]


def with_input(given: Mapping[str, Any], latents: Any) -> dict[str, Any]:
    """The arguments with other latents."""
    return {**given, _input_in(given): latents}


def _input_in(given: Mapping[str, Any]) -> str:
    return next((name for name in INPUTS if name in given), next(iter(given)))  # else the first


def _time_in(given: Mapping[str, Any]) -> str:
    return next((name for name in TIMES if name in given), TIMES[0])


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


def only_rows(value: Any, rows: int, own: slice, in_lists: bool) -> Any:
    """An argument, or arguments by name, for the rows `own` of a batch of `rows`; `in_lists` if
    batches are lists with an entry for each row."""
    if in_lists and isinstance(value, list) and len(value) == rows:
        return value[own]
    if isinstance(value, Tensor):
        if value.ndim == 0 or len(value) < rows or len(value) % rows:
            return value
        each = len(value) // rows  # more than 1 for the frames of a video
        return value[own.start * each : own.stop * each]
    if isinstance(value, dict):
        return {
            name: item if name in NOT_PER_SAMPLE else only_rows(item, rows, own, in_lists)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(only_rows(item, rows, own, in_lists) for item in value)
    return value


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


def timestep_in(given: Mapping[str, Any]) -> float | None:
    """The network's timestep; None if it gets none, or if rows have different ones."""
    timestep = given.get(_time_in(given))
    if not isinstance(timestep, Tensor | float | int) or isinstance(timestep, bool):
        return None
    values = set(torch.as_tensor(timestep).flatten().tolist())
    return float(values.pop()) if len(values) == 1 else None


def with_timestep(given: Mapping[str, Any], timestep: float) -> dict[str, Any]:
    """The arguments with another timestep, in the shape and dtype of the given one."""
    name = _time_in(given)
    old = given[name]
    if isinstance(old, Tensor):
        value = timestep if old.is_floating_point() else round(timestep)
        return {**given, name: torch.full_like(old, value)}
    return {**given, name: type(old)(timestep)}
