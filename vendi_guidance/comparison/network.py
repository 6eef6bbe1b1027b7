"""How methods change what a pipeline's network is given, whatever the pipeline.

A pipeline evaluates its UNet or transformer for the prompts, and under classifier-free guidance in
the same batch, mostly before these rows, without them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import in_form_of, tensor_of
from vendi_guidance.adapter.cfg import Evaluation as Asked
from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.nearby import with_tokens
from vendi_guidance.adapter.undistilled import ADAPTERS, AUTO, Undistilled, answer, check_fits
from vendi_guidance.comparison.methods import Method, PipelineCall
from vendi_guidance.patching import Patch

ADDED, POOLED = "added_cond_kwargs", ("text_embeds", "pooled_projections")
"""What networks call the prompts' pooled embeddings; the first name is in `added_cond_kwargs`."""


class Evaluation(NamedTuple):
    """An evaluation of the network that a pipeline asks for.

    Attributes:
        call: of the pipeline.
        asked: the network, and its arguments.
        step: its number in the call, from 0.
        done: the share of the steps before it.
    """

    call: PipelineCall
    asked: Asked
    step: int
    done: float

    def output(self) -> Any:
        """The network's output."""
        return self.asked.forward(*self.asked.args, **self.asked.kwargs)

    def output_without_cfg(self) -> Any:
        """The output for the prompts, for rows without them too: the pipeline's classifier-free
        guidance has no effect. Only the prompts' rows are evaluated.

        Raises:
            ValueError: there are no others.
        """
        own = self._prompt_rows()
        times = self.asked.rows // len(own)
        if times == 1:
            raise ValueError(
                f"{_name(self.call.pipe)} gives its network the rows of the prompts alone: it is "
                "called without CFG, or evaluates that apart, where this method cannot change it"
            )
        raw = self._replace(asked=self.asked.of_rows(slice(own.start, own.stop))).output()
        return in_form_of(raw, torch.cat([tensor_of(raw)] * times))

    def output_for(self, change: Callable[[Tensor, int], Tensor]) -> Any:
        """The output where `change` is made to each sample's embeddings of the prompt: to the
        tokens, (1 or more rows, tokens, ..., width), then to the pooled ones, (1, width), where
        the network takes any.

        Args:
            change: of embeddings, and the number of their sample.

        Raises:
            ValueError: the network is given no embeddings that are known here.
        """
        asked, own = self.asked, self._prompt_rows()
        args, kwargs = with_tokens(
            *(asked.module, asked.args, asked.kwargs, own, asked.rows),
            lambda tokens, sample, _: change(tokens, sample),
        )
        if kwargs.get(ADDED):
            kwargs[ADDED] = dict(kwargs[ADDED])
        for place, name in ((kwargs.get(ADDED) or {}, POOLED[0]), (kwargs, POOLED[1])):
            if (pooled := place.get(name)) is not None:
                place[name] = pooled.clone()
                for sample, row in enumerate(own):
                    place[name][row] = change(pooled[row : row + 1], sample)[0]
        return asked.forward(*args, **kwargs)

    def output_of_undistilled(self) -> Any:
        """The output of the network that this one was distilled from: `call.undistilled`, or this
        one without its LoRAs.

        Raises:
            ValueError: there is none, or it does not fit the pipeline.
        """
        given = self.call.undistilled
        undistilled = ADAPTERS if given in (None, AUTO) else given
        if not self.step:
            check_fits(undistilled, self.call.pipe, [self.asked.module])
        return answer(undistilled, *self.asked[:4])

    def _prompt_rows(self) -> range:
        rows, count = self.asked.rows, len(self.call.prompts)
        if rows not in (count, 2 * count):
            raise ValueError(
                f"{_name(self.call.pipe)} gives its network {rows} rows for {count} prompts"
            )
        first = 0 if family_of(self.call.pipe).prompts_first else rows - count
        return range(first, first + count)


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

        def changed(asked: Asked) -> Any:
            step, steps = next(numbers), len(pipe.scheduler.timesteps)
            if step >= steps:
                raise ValueError(f"{_name(pipe)} evaluates its network more than once a step")
            return self.evaluate(Evaluation(call, asked, step, step / steps))

        with _answered(networks, changed):
            yield {}


@contextmanager
def rows_counted(pipe: Any, undistilled: Undistilled = None) -> Iterator[list[int]]:
    """How many rows the pipeline's networks are given meanwhile, evaluation by evaluation, and the
    one that its network was distilled from."""
    counts: list[int] = []
    others = [undistilled] if isinstance(undistilled, nn.Module) else []

    def counted(asked: Asked) -> Any:
        counts.append(asked.rows)
        return asked.forward(*asked.args, **asked.kwargs)

    with _answered(_networks(pipe) + others, counted):
        yield counts


@contextmanager
def _answered(networks: Sequence[nn.Module], evaluate: Callable[[Asked], Any]) -> Iterator[None]:
    """Meanwhile `evaluate` answers for these networks."""

    def wrapped(module: nn.Module) -> Patch:
        return Patch(
            module,
            "forward",
            lambda forward: lambda *args, **kwargs: evaluate(Asked(module, forward, args, kwargs)),
        )

    with ExitStack() as stack:
        for patch in map(wrapped, networks):
            patch.apply()
            stack.callback(patch.remove)
        yield


def _networks(pipe: Any) -> list[nn.Module]:
    found = [getattr(pipe, name, None) for name in NETWORKS]
    return [one for one in found if isinstance(one, nn.Module)]


def _name(pipe: Any) -> str:
    return str(getattr(pipe, "stock", type(pipe)).__name__)
