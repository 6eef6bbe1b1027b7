"""How methods change what a pipeline's network is given, whatever the pipeline.

A pipeline evaluates its UNet or transformer for the prompts, and under classifier-free guidance in
the same batch, mostly before these rows, without them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import in_form_of, input_of, only_rows, tensor_of
from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.nearby import with_tokens
from vendi_guidance.adapter.undistilled import ADAPTERS, Undistilled, answer, check_fits
from vendi_guidance.comparison.methods import Method, PipelineCall
from vendi_guidance.patching import Patch

ADDED, POOLED = "added_cond_kwargs", ("text_embeds", "pooled_projections")
"""What networks call the prompts' pooled embeddings; the first name is in `added_cond_kwargs`."""


class Evaluation(NamedTuple):
    """An evaluation of the network that a pipeline asks for.

    Attributes:
        call: of the pipeline.
        network, forward: what evaluates it.
        args, kwargs: as the pipeline gives them.
        step: its number in the call, from 0.
        done: the share of the steps before it.
    """

    call: PipelineCall
    network: nn.Module
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

    def output_for(self, change: Callable[[Tensor, int], Tensor]) -> Any:
        """The output where `change` is made to each sample's embeddings of the prompt: to the
        tokens, (1 or more rows, tokens, ..., width), then to the pooled ones, (1, width), where
        the network takes any.

        Args:
            change: of embeddings, and the number of their sample.

        Raises:
            ValueError: the network is given no embeddings that are known here.
        """
        rows, own = self._rows()
        args, kwargs = with_tokens(
            *(self.network, self.args, self.kwargs, range(rows)[own], rows),
            lambda tokens, sample, _: change(tokens, sample),
        )
        if kwargs.get(ADDED):
            kwargs[ADDED] = dict(kwargs[ADDED])
        for place, name in ((kwargs.get(ADDED) or {}, POOLED[0]), (kwargs, POOLED[1])):
            if (pooled := place.get(name)) is not None:
                place[name] = pooled.clone()
                for sample, row in enumerate(range(rows)[own]):
                    place[name][row] = change(pooled[row : row + 1], sample)[0]
        return self.forward(*args, **kwargs)

    def output_of_undistilled(self) -> Any:
        """The output of the network that this one was distilled from: `call.undistilled`, or this
        one without its LoRAs.

        Raises:
            ValueError: there is none, or it does not fit the pipeline.
        """
        undistilled = ADAPTERS if self.call.undistilled is None else self.call.undistilled
        if not self.step:
            check_fits(undistilled, self.call.pipe, [self.network])
        return answer(undistilled, self.network, self.forward, self.args, self.kwargs)

    def _rows(self) -> tuple[int, slice]:
        """How many rows there are, and those of the prompts."""
        rows, count = len(input_of(self.args, self.kwargs)), len(self.call.prompts)
        if rows not in (count, 2 * count):
            raise ValueError(
                f"{_name(self.call.pipe)} gives its network {rows} rows for {count} prompts"
            )
        first = 0 if family_of(self.call.pipe).prompts_first else rows - count
        return rows, slice(first, first + count)


class PerStep(Method):
    """A method that answers for the network, in pipelines that evaluate one network once a step."""

    def evaluate(self, evaluation: Evaluation) -> Any:
        """What the pipeline gets for an evaluation."""
        raise NotImplementedError

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        """Meanwhile `evaluate` answers for the network, in one call of the pipeline.

        Raises:
            ValueError: the pipeline has no network, or two, or evaluates it more than once a step.
        """
        pipe, numbers = call.pipe, count()
        networks = _networks(pipe)
        if len(networks) != 1:
            raise ValueError(f"{_name(pipe)} has {len(networks)} networks that denoise, not one")

        def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(forward)
            def changed(*args: Any, **kwargs: Any) -> Any:
                step, steps = next(numbers), len(pipe.scheduler.timesteps)
                if step >= steps:
                    raise ValueError(f"{_name(pipe)} evaluates its network more than once a step")
                done = step / steps
                return self.evaluate(
                    Evaluation(call, networks[0], forward, args, kwargs, step, done)
                )

            return changed

        with _wrapped(networks, wrap):
            yield {}


@contextmanager
def rows_counted(pipe: Any, undistilled: Undistilled = None) -> Iterator[list[int]]:
    """How many rows the pipeline's networks are given meanwhile, evaluation by evaluation, and the
    one that its network was distilled from."""
    counts: list[int] = []
    networks = _networks(pipe)
    if isinstance(undistilled, nn.Module):
        networks.append(undistilled)

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def counted(*args: Any, **kwargs: Any) -> Any:
            counts.append(len(input_of(args, kwargs)))
            return forward(*args, **kwargs)

        return counted

    with _wrapped(networks, wrap):
        yield counts


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
