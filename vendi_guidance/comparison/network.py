"""How methods change what a pipeline's network is given, whatever the pipeline.

A pipeline evaluates its UNet or transformer for the prompts, and under classifier-free guidance in
the same batch, mostly before these rows, without them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import in_form_of, input_of, only_rows, tensor_of
from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.families import family_of
from vendi_guidance.comparison.methods import PipelineCall
from vendi_guidance.patching import Patch

TOKENS, POOLED = "encoder_hidden_states", ("text_embeds", "pooled_projections")
"""What networks call the prompts' embeddings; `text_embeds` is in `added_cond_kwargs`."""


class Evaluation(NamedTuple):
    """An evaluation of the network that a pipeline asks for.

    Attributes:
        call: of the pipeline.
        forward: evaluates it.
        args, kwargs: as the pipeline gives them.
        step: its number in the call, from 0.
        done: the share of the steps before it.
    """

    call: PipelineCall
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    step: int
    done: float

    def output(self) -> Any:
        """The network's output."""
        return self.forward(*self.args, **self.kwargs)

    def output_without_cfg(self) -> Any:
        """The output for the prompts, for rows without them too: the pipeline's classifier-free
        guidance has no effect. Only the prompts' rows are evaluated.

        Raises:
            ValueError: there are no others.
        """
        rows, own = self._rows()
        if own == slice(0, rows):
            raise ValueError(
                f"{_name(self.call.pipe)} gives its network the rows of the prompts alone: it has "
                "no CFG to change, whatever its guidance scale"
            )
        args, kwargs = only_rows(self.args, self.kwargs, rows, own)
        raw = self.forward(*args, **kwargs)
        output = tensor_of(raw)
        return in_form_of(raw, torch.cat([output] * (rows // len(output))))

    def output_for(self, change: Callable[[Tensor], Tensor]) -> Any:
        """The output where `change` is made to the prompts' embeddings: to the tokens, (n, tokens,
        width), then to the pooled embeddings, (n, width), where the network takes any.

        Raises:
            ValueError: the network is given no embeddings that are known here.
        """
        kwargs = dict(self.kwargs)
        if not isinstance(kwargs.get(TOKENS), Tensor):
            raise ValueError(f"{_name(self.call.pipe)} gives its network no {TOKENS}")
        if kwargs.get("added_cond_kwargs"):
            kwargs["added_cond_kwargs"] = dict(kwargs["added_cond_kwargs"])
        added, (_, own) = kwargs.get("added_cond_kwargs") or {}, self._rows()
        for place, name in ((kwargs, TOKENS), (added, POOLED[0]), (kwargs, POOLED[1])):
            if (rows := place.get(name)) is not None:
                new = change(rows[own]).to(rows.dtype)
                place[name] = torch.cat([rows[: own.start], new, rows[own.stop :]])
        return self.forward(*self.args, **kwargs)

    def _rows(self) -> tuple[int, slice]:
        """How many rows there are, and those of the prompts."""
        rows, count = len(input_of(self.args, self.kwargs)), len(self.call.prompts)
        if rows not in (count, 2 * count):
            raise ValueError(
                f"{_name(self.call.pipe)} gives its network {rows} rows for {count} prompts"
            )
        first = 0 if family_of(self.call.pipe).prompts_first else rows - count
        return rows, slice(first, first + count)


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

    with _wrapped(_networks(pipe), wrap):
        yield counts


@contextmanager
def evaluated_by(call: PipelineCall, evaluate: Callable[[Evaluation], Any]) -> Iterator[None]:
    """Meanwhile `evaluate` answers for the network, in one call of the pipeline.

    Raises:
        ValueError: the pipeline has no network, or two, or evaluates it more than once a step.
    """
    pipe, made = call.pipe, 0
    networks = _networks(pipe)
    if len(networks) != 1:
        raise ValueError(f"{_name(pipe)} has {len(networks)} networks that denoise, not one")

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def changed(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            step, made = made, made + 1
            steps = len(pipe.scheduler.timesteps)
            if step >= steps:
                raise ValueError(f"{_name(pipe)} evaluates its network more than once a step")
            return evaluate(Evaluation(call, forward, args, kwargs, step, step / steps))

        return changed

    with _wrapped(networks, wrap):
        yield


@contextmanager
def _wrapped(networks: Sequence[nn.Module], wrap: Callable[..., Any]) -> Iterator[None]:
    patches = [Patch(network, "forward", wrap) for network in networks]
    try:
        for patch in patches:
            patch.apply()
        yield
    finally:
        for patch in patches:
            patch.remove()


def _networks(pipe: Any) -> list[nn.Module]:
    found = [getattr(pipe, name, None) for name in NETWORKS]
    return [one for one in found if isinstance(one, nn.Module)]


def _name(pipe: Any) -> str:
    return str(getattr(pipe, "stock", type(pipe)).__name__)
