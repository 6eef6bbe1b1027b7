"""How methods change what a pipeline's network is given, whatever the pipeline.

A pipeline evaluates its UNet or transformer for the prompts, and under classifier-free guidance in
the same batch, before these rows, without them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.guidance.network import only_rows
from vendi_guidance.guidance.patching import Patch


class Evaluation(NamedTuple):
    """An evaluation of the network that a pipeline asks for.

    Attributes:
        forward: evaluates it.
        args, kwargs: as the pipeline gives them.
        step: its number in the call of the pipeline, from 0.
        done: the share of the steps before it.
    """

    forward: Callable[..., tuple[Tensor]]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    step: int
    done: float

    def made(self) -> tuple[Tensor]:
        """The network's output."""
        return self.forward(*self.args, **self.kwargs)


def denoiser(pipe: Any) -> nn.Module:
    """The network that a pipeline denoises with."""
    return getattr(pipe, "unet", None) or pipe.transformer


def first_layer(pipe: Any) -> nn.Module:
    """The layer of the network that every row passes once."""
    network: Any = denoiser(pipe)
    return network.conv_in if hasattr(network, "conv_in") else network.pos_embed


@contextmanager
def evaluated_by(pipe: Any, evaluate: Callable[[Evaluation], tuple[Tensor]]) -> Iterator[None]:
    """Meanwhile `evaluate` answers for the network, in one call of the pipeline."""
    made = 0

    def wrap(forward: Callable[..., tuple[Tensor]]) -> Callable[..., tuple[Tensor]]:
        @wraps(forward)
        def changed(*args: Any, **kwargs: Any) -> tuple[Tensor]:
            nonlocal made
            step, made = made, made + 1
            done = step / len(pipe.scheduler.timesteps)
            return evaluate(Evaluation(forward, args, kwargs, step, done))

        return changed

    patch = Patch(denoiser(pipe), "forward", wrap)
    patch.apply()
    try:
        yield
    finally:
        patch.remove()


def without_cfg(evaluation: Evaluation, count: int) -> tuple[Tensor]:
    """The output for `count` prompts, for rows without them too: the pipeline's classifier-free
    guidance has no effect. Only the prompts' rows are evaluated."""
    rows = count * 2
    args, kwargs = only_rows(evaluation.args, evaluation.kwargs, rows, slice(count, rows))
    output, *_ = evaluation.forward(*args, **kwargs)
    return (torch.cat([output, output]),)


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
) -> tuple[Tensor]:
    """The output with changed embeddings of the last `count` rows, the prompts'."""
    kwargs = dict(evaluation.kwargs)
    added = dict(kwargs.get("added_cond_kwargs") or {})
    place, name = (
        (added, "text_embeds") if "text_embeds" in added else (kwargs, "pooled_projections")
    )
    tokens, pooled = kwargs["encoder_hidden_states"], place.get(name)
    new = change(Condition(tokens[-count:], None if pooled is None else pooled[-count:]))
    kwargs["encoder_hidden_states"] = _last_replaced(tokens, new.tokens)
    if pooled is not None and new.pooled is not None:
        place[name] = _last_replaced(pooled, new.pooled)
    if added:
        kwargs["added_cond_kwargs"] = added
    return evaluation._replace(kwargs=kwargs).made()


def _last_replaced(rows: Tensor, new: Tensor) -> Tensor:
    return torch.cat([rows[: -len(new)], new.to(rows.dtype)])
