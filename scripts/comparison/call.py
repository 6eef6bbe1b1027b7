"""A pipeline call, and the evaluations of its network that a method may change."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import by_name, input_of, tensor_of
from vendi_guidance.adapter.cfg import Evaluation
from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.levels import Level, Reader
from vendi_guidance.adapter.patching import patched
from vendi_guidance.adapter.tokens import with_tokens
from vendi_guidance.scores.groups import rows_by_label


@dataclass(frozen=True)
class Call:
    """A call of a pipeline, which generates one image for each prompt.

    Attributes:
        pipe: a pipeline with exactly one denoising network.
        prompts, seeds: of each image; the seed determines its initial noise.
        arguments: of the call, the prompts among them.
    """

    pipe: Any
    prompts: list[str]
    seeds: list[int]
    arguments: dict[str, Any]

    @property
    def groups(self) -> list[list[int]]:
        """The images of each prompt with several."""
        rows = rows_by_label(self.prompts, len(self.prompts))
        return [own for own in rows.values() if len(own) > 1]

    def images(self, **changes: Any) -> list[Image]:
        """Call the pipeline, with some arguments changed."""
        generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        given = self.arguments | {"generator": generators} | changes
        return self.pipe(**given).images

    def images_by(self, evaluate: Callable[["Step"], Any]) -> list[Image]:
        """Call the pipeline with `evaluate` in place of its network.

        Raises:
            ValueError: the pipeline does not have one network, which it evaluates once per step.
        """
        found = (getattr(self.pipe, name, None) for name in NETWORKS)
        [network] = (one for one in found if isinstance(one, nn.Module))
        numbers = count()

        def replaced(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            evaluation = Evaluation(network, forward, by_name(network, args, kwargs))
            number, steps = next(numbers), len(self.pipe.scheduler.timesteps)
            if number >= steps:
                raise ValueError("the pipeline evaluates its network more than once per step")
            return evaluate(Step(evaluation, number, number / steps, self._rows(evaluation.rows)))

        with patched(network, "forward", lambda forward: partial(replaced, forward)):
            return self.images()

    def level_at(self, number: int) -> tuple[Reader, Level]:
        """The noise level of a step, which is running."""
        reader = Reader(self.pipe.scheduler)
        return reader, reader.at(ratio_at(reader, number))

    def _rows(self, rows: int) -> range:
        """Those of the prompts in a batch."""
        count = len(self.prompts)
        if rows not in (count, 2 * count):
            raise ValueError(f"the network gets {rows} rows for {count} prompts")
        first = 0 if family_of(self.pipe).prompts_first else rows - count
        return range(first, first + count)


def ratio_at(reader: Reader, number: int) -> float:
    """The noise-to-signal ratio at which a step of the reader's scheduler begins."""
    scheduler, timestep = reader.scheduler, float(reader.scheduler.timesteps[number])
    if reader.unit == "flow":
        noise = min(timestep / scheduler.config.num_train_timesteps, 1.0)
        return noise / (1 - noise) if noise < 1 else math.inf
    alphas = scheduler.alphas_cumprod.double().cpu().numpy()
    angles = np.arccos(np.sqrt(alphas))
    return math.tan(np.interp(timestep, np.arange(len(angles)), angles))


class Step(NamedTuple):
    """The evaluation of the network at a step of a call.

    Attributes:
        evaluation: the network and its arguments.
        number: index of the step, from 0.
        done: the fraction of the steps that is completed.
        rows: those of the prompts.
    """

    evaluation: Evaluation
    number: int
    done: float
    rows: range

    def output(self) -> Any:
        """The network's output."""
        return self.evaluation.make()

    def of_prompts(self) -> Evaluation:
        """The evaluation of the rows of the prompts alone."""
        return self.evaluation.of_rows(slice(self.rows.start, self.rows.stop))

    def denoised(self, call: Call, output: Tensor) -> Tensor:
        """The predicted clean latents for an output, after CFG."""
        reader, level = call.level_at(self.number)
        alone = self.of_prompts()
        latents = tensor_of(input_of(alone.given)) / reader.input_scale(level)
        return reader.denoise(latents, self.guided(output, call.arguments["guidance_scale"]), level)

    def guided(self, output: Tensor, scale: float) -> Tensor:
        """The (rows, ...) output after CFG at this scale, of the rows of the prompts."""
        own = output[self.rows.start : self.rows.stop]
        if len(output) == len(own):
            return own
        other = output[len(own) :] if self.rows.start == 0 else output[: len(own)]
        return other + scale * (own - other)

    def output_for(self, change: Callable[[Tensor, int], Tensor]) -> Any:
        """The output with changed prompt embeddings.

        Args:
            change: maps embeddings and the index of their sample to new embeddings: first tokens,
                (1 or more rows, tokens, ..., width), then the pooled embedding, (1, width), if any.

        Raises:
            ValueError: the network gets no token embeddings under a known name.
        """
        module, forward, given, _ = self.evaluation
        given = with_tokens(
            *(module, given, self.rows, self.evaluation.rows),
            lambda tokens, sample, _: change(tokens, sample),
        )
        added = dict(given.get("added_cond_kwargs") or {})
        for arguments, name in ((added, "text_embeds"), (given, "pooled_projections")):
            pooled = arguments.get(name)
            if pooled is not None:
                arguments[name] = pooled.clone()
                for sample, row in enumerate(self.rows):
                    arguments[name][row] = change(pooled[row : row + 1], sample)[0]
        if added:
            given["added_cond_kwargs"] = added
        return forward(**given)
