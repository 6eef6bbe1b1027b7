"""How methods change what a pipeline's network is given, whatever the pipeline.

A pipeline evaluates its UNet or transformer for the prompts, and under classifier-free guidance in
the same batch, mostly before these rows, without them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import in_form_of, input_of, only_rows, tensor_of
from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.families import family_of
from vendi_guidance.patching import Patch

TOKENS = "encoder_hidden_states"
POOLED = ("text_embeds", "pooled_projections")
"""What networks call the prompts' embeddings."""


class Evaluation(NamedTuple):
    """An evaluation of the network that a pipeline asks for.

    Attributes:
        pipe: the pipeline.
        forward: evaluates it.
        args, kwargs: as the pipeline gives them.
        step: its number in the call of the pipeline, from 0.
        done: the share of the steps before it.
    """

    pipe: Any
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    step: int
    done: float

    def made(self) -> Any:
        """The network's output."""
        return self.forward(*self.args, **self.kwargs)

    def rows_of(self, count: int) -> slice:
        """The rows of `count` prompts.

        Raises:
            ValueError: there are rows of something else than the prompts and no prompts.
        """
        rows = len(input_of(self.args, self.kwargs))
        if rows not in (count, 2 * count):
            raise ValueError(
                f"{_name(self.pipe)} gives its network {rows} rows for {count} prompts"
            )
        first = 0 if family_of(self.pipe).prompts_first else rows - count
        return slice(first, first + count)


def denoiser(pipe: Any) -> nn.Module:
    """The network that a pipeline denoises with.

    Raises:
        ValueError: it has none, or two.
    """
    found = _networks(pipe)
    if len(found) != 1:
        raise ValueError(f"{_name(pipe)} has {len(found)} networks that denoise, not one")
    return found[0]


@contextmanager
def rows_counted(pipe: Any) -> Iterator[list[int]]:
    """How many rows the pipeline's networks are given meanwhile, evaluation by evaluation."""
    counts: list[int] = []

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def counted(*args: Any, **kwargs: Any) -> Any:
            counts.append(len(input_of(args, kwargs)))
            return forward(*args, **kwargs)

        return counted

    with ExitStack() as stack:
        for network in _networks(pipe):
            patch = Patch(network, "forward", wrap)
            patch.apply()
            stack.callback(patch.remove)
        yield counts


@contextmanager
def evaluated_by(pipe: Any, evaluate: Callable[[Evaluation], Any]) -> Iterator[None]:
    """Meanwhile `evaluate` answers for the network, in one call of the pipeline.

    Raises:
        ValueError: the pipeline evaluates its network more than once a step.
    """
    made = 0

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def changed(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            step, made = made, made + 1
            steps = len(pipe.scheduler.timesteps)
            if step >= steps:
                raise ValueError(f"{_name(pipe)} evaluates its network more than once a step")
            return evaluate(Evaluation(pipe, forward, args, kwargs, step, step / steps))

        return changed

    patch = Patch(denoiser(pipe), "forward", wrap)
    patch.apply()
    try:
        yield
    finally:
        patch.remove()


def without_cfg(evaluation: Evaluation, count: int) -> Any:
    """The output for `count` prompts, for rows without them too: the pipeline's classifier-free
    guidance has no effect. Only the prompts' rows are evaluated.

    Raises:
        ValueError: there are no others.
    """
    own, rows = evaluation.rows_of(count), len(input_of(evaluation.args, evaluation.kwargs))
    if rows == count:
        raise ValueError(
            f"{_name(evaluation.pipe)} gives its network the rows of the prompts alone: it has no "
            "CFG to change, whatever its guidance scale"
        )
    args, kwargs = only_rows(evaluation.args, evaluation.kwargs, rows, own)
    raw = evaluation.forward(*args, **kwargs)
    output = tensor_of(raw)
    return in_form_of(raw, torch.cat([output] * (rows // count)))


class Condition(NamedTuple):
    """The prompts' embeddings.

    Attributes:
        tokens: (n, tokens, width) embeddings.
        pooled: (n, width) embeddings, or None where the network takes none.
    """

    tokens: Tensor
    pooled: Tensor | None


def conditioned(
    evaluation: Evaluation, count: int, change: Callable[[Condition], Condition]
) -> Any:
    """The output with changed embeddings in the rows of `count` prompts.

    Raises:
        ValueError: the network is given no embeddings that are known here.
    """
    kwargs = dict(evaluation.kwargs)
    if not isinstance(kwargs.get(TOKENS), Tensor):
        raise ValueError(f"{_name(evaluation.pipe)} gives its network no {TOKENS}")
    added = dict(kwargs.get("added_cond_kwargs") or {})
    place, name = (added, POOLED[0]) if POOLED[0] in added else (kwargs, POOLED[1])
    own, tokens, pooled = evaluation.rows_of(count), kwargs[TOKENS], place.get(name)
    new = change(Condition(tokens[own], None if pooled is None else pooled[own]))
    kwargs[TOKENS] = _replaced(tokens, own, new.tokens)
    if pooled is not None and new.pooled is not None:
        place[name] = _replaced(pooled, own, new.pooled)
    if added:
        kwargs["added_cond_kwargs"] = added
    return evaluation._replace(kwargs=kwargs).made()


def _networks(pipe: Any) -> list[nn.Module]:
    found = [getattr(pipe, name, None) for name in NETWORKS]
    return [one for one in found if isinstance(one, nn.Module)]


def _replaced(rows: Tensor, own: slice, new: Tensor) -> Tensor:
    return torch.cat([rows[: own.start], new.to(rows.dtype), rows[own.stop :]])


def _name(pipe: Any) -> str:
    return str(getattr(pipe, "stock", type(pipe)).__name__)
