"""Lets methods change the evaluations of a pipeline's network, whatever the pipeline.

A pipeline evaluates its UNet or transformer on rows for the prompts. Under classifier-free guidance
(CFG), the same batch has unconditional rows too, usually before those of the prompts.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import in_form_of, tensor_of
from vendi_guidance.adapter.cfg import Evaluation as NetworkCall
from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.tokens import with_tokens
from vendi_guidance.adapter.undistilled import ADAPTERS, AUTO, answer, check_fits
from vendi_guidance.comparison.methods import Method, PipelineCall
from vendi_guidance.patching import Patch


class Evaluation(NamedTuple):
    """One evaluation of the network during a pipeline call.

    Attributes:
        call: the pipeline call.
        network_call: the network and its arguments.
        step: index of the step, from 0.
        done: the fraction of the steps that is completed.
    """

    call: PipelineCall
    network_call: NetworkCall
    step: int
    done: float

    def output(self) -> Any:
        """The network's output."""
        return self.network_call.forward(*self.network_call.args, **self.network_call.kwargs)

    def output_without_cfg(self) -> Any:
        """The output for the prompts in all rows, so that CFG has no effect and no cost.

        Raises:
            ValueError: there are no unconditional rows.
        """
        own = self._prompt_rows()
        times = self.network_call.rows // len(own)
        if times == 1:
            raise ValueError(
                f"{_name(self.call.pipe)} evaluates its network on the prompts' rows only: CFG is "
                "off, or runs as a separate evaluation, which this method does not support"
            )
        conditional = self.network_call.of_rows(slice(own.start, own.stop))
        raw = conditional.forward(*conditional.args, **conditional.kwargs)
        return in_form_of(raw, torch.cat([tensor_of(raw)] * times))

    def output_for(self, change: Callable[[Tensor, int], Tensor]) -> Any:
        """The output with changed prompt embeddings.

        Args:
            change: maps embeddings and the index of their sample to new embeddings: first tokens,
                (1 or more rows, tokens, ..., width), then the pooled embedding, (1, width), if any.

        Raises:
            ValueError: the network gets no token embeddings under a known name.
        """
        original, own = self.network_call, self._prompt_rows()
        args, kwargs = with_tokens(
            *(original.module, original.args, original.kwargs, own, original.rows),
            lambda tokens, sample, _: change(tokens, sample),
        )
        added = dict(kwargs.get("added_cond_kwargs") or {})
        for arguments, name in ((added, "text_embeds"), (kwargs, "pooled_projections")):
            pooled = arguments.get(name)
            if pooled is not None:
                arguments[name] = pooled.clone()
                for sample, row in enumerate(own):
                    arguments[name][row] = change(pooled[row : row + 1], sample)[0]
        if added:
            kwargs["added_cond_kwargs"] = added
        return original.forward(*args, **kwargs)

    def output_of_undistilled(self) -> Any:
        """The output of `call.undistilled`, or by default of the network without its LoRAs.

        Raises:
            ValueError: the network has no LoRAs, or the undistilled one does not fit the pipeline.
        """
        given = self.call.undistilled
        undistilled = ADAPTERS if given in (None, AUTO) else given
        if self.step == 0:
            check_fits(undistilled, self.call.pipe, [self.network_call.module])
        return answer(undistilled, *self.network_call[:4])

    def _prompt_rows(self) -> range:
        rows, count = self.network_call.rows, len(self.call.prompts)
        if rows not in (count, 2 * count):
            raise ValueError(
                f"{_name(self.call.pipe)} evaluates its network on {rows} rows for {count} prompts"
            )
        first = 0 if family_of(self.call.pipe).prompts_first else rows - count
        return range(first, first + count)


class PerStep(Method):
    """A method that replaces the network's output; the network must run once per step."""

    def evaluate(self, evaluation: Evaluation) -> Any:
        """The output that the pipeline gets for an evaluation."""
        raise NotImplementedError

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        """Context for one pipeline call, in which `evaluate` replaces the network.

        Raises:
            ValueError: the pipeline has no network or two, or runs it more than once per step.
        """
        pipe, numbers = call.pipe, count()
        networks = _networks(pipe)
        if len(networks) != 1:
            raise ValueError(f"{_name(pipe)} has {len(networks)} denoising networks, not one")

        def replaced(network_call: NetworkCall) -> Any:
            step, steps = next(numbers), len(pipe.scheduler.timesteps)
            if step >= steps:
                raise ValueError(f"{_name(pipe)} evaluates its network more than once per step")
            return self.evaluate(Evaluation(call, network_call, step, step / steps))

        with _patched(networks, replaced):
            yield {}


@contextmanager
def _patched(networks: list[nn.Module], evaluate: Callable[[NetworkCall], Any]) -> Iterator[None]:
    """Context in which `evaluate` replaces the networks' `forward`."""

    def wrap(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: evaluate(NetworkCall(module, forward, args, kwargs))

    with ExitStack() as stack:
        for module in networks:
            patch = Patch(module, "forward", partial(wrap, module))
            patch.apply()
            stack.callback(patch.remove)
        yield


def _networks(pipe: Any) -> list[nn.Module]:
    found = [getattr(pipe, name, None) for name in NETWORKS]
    return [one for one in found if isinstance(one, nn.Module)]


def _name(pipe: Any) -> str:
    return str(getattr(pipe, "stock", type(pipe)).__name__)
