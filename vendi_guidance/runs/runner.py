"""Generation of a run's images, so that it can be stopped and resumed at any moment.

In a round, each of W processes generates the next b images, guided away from the window and from
one another, but not from those of the other processes. When all have finished, every process adds
all W b samples to its window, in order. W prompts take turns, so that the images of one prompt come
from one process.

Each process then saves its images, several at a time in threads. A round counts as finished once
all processes have; otherwise resuming generates it again. A run resumed with the same W therefore
generates the same images.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from time import perf_counter
from typing import Any, NamedTuple

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from PIL.Image import Image

from vendi_guidance.adapter.arguments import by_name, input_of
from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.mixins import DiversityGuided, OnStep
from vendi_guidance.adapter.patching import patched
from vendi_guidance.adapter.undistilled import Undistilled
from vendi_guidance.features.weights import reason
from vendi_guidance.guidance.window import Finished, SlidingWindow, counts_of, named, unnamed
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.folder import Progress, RunFolder
from vendi_guidance.runs.models import BROKEN
from vendi_guidance.runs.plan import Item, Plan
from vendi_guidance.runs.signals import Stop

logger = logging.getLogger(__name__)


Sampler = Callable[[DiversityGuided, dict[str, Any]], list[Image]]
"""Generates a batch in place of the pipeline's usual call, given its arguments, in which each image
has its own generator."""


class _Result(NamedTuple):
    """The part of a round that one process generated, as shared with the others."""

    samples: list[Finished]  # for the window, of each shape
    seconds: float = 0.0
    skipped: int = 0  # number of guidance steps skipped
    sigma_prompt: float | None = None  # the prompt bandwidth that guidance has chosen
    evaluations: int = 0  # rows that passed through the network
    signal: int | None = None  # signal that asked this process to stop
    out_of_memory: bool = False  # True if nothing was generated for lack of memory


@dataclass(eq=False)
class Runner:
    """Generates the images of a run."""

    pipe: DiversityGuided  # the window of its guidance is in the state after `progress`
    plan: Plan
    folder: RunFolder  # locked by the first process
    group: ProcessGroup
    stop: Stop
    progress: Progress  # after the last finished round
    sampler: Sampler | None = field(default=None, init=False)
    on_step: OnStep | None = field(default=None, init=False)  # called at each denoising step
    made: int = field(default=0, init=False)  # images since the run was started or resumed
    seconds: float = field(default=0.0, init=False)  # time that these took
    stopped_by: int | None = field(default=None, init=False)  # the signal that stopped the run

    def __post_init__(self) -> None:
        self._share_bandwidth(self.progress.sigma_prompt)

    @property
    def window(self) -> SlidingWindow:
        return self.pipe.guidance.window

    def rounds(self) -> Iterator[int]:
        """Generate the missing images, and yield the number of images of each round once it is
        saved. OSError if the folder cannot be written, when rounds yielded so far are saved;
        ValueError if a sample does not fit the window, or memory is too small for one image."""
        items = self.plan.items(self.progress.done, self.progress.side_by_side)
        self.stop.in_batch = True
        while self.stopped_by is None and (
            batch := list(islice(items, self.progress.batch_size * self.group.count))
        ):
            part = self._part(batch, self.group.rank)
            mine, images = self.group.agree(partial(self._generate, part))
            shared = self.group.share(mine[1:], **named(mine.samples))
            results = [_Result(unnamed(samples), *values) for values, samples in shared]
            if any(result.out_of_memory for result in results):
                self.group.agree(self._halve_batches)
                items = chain(batch, items)
                continue
            self._finish(batch, images, results)
            yield len(batch)

    def _finish(self, items: list[Item], images: list[Image], results: list[_Result]) -> None:
        """Add the samples of a round to the window, and save the round."""
        entered = self.group.agree(lambda: _enter(self.window, results))
        self._share_bandwidth(next((r.sigma_prompt for r in results if r.sigma_prompt), None))
        if self.progress.done == 0:  # replace an old run only now that this one has images
            self.group.agree(self._begin)
        progress = replace(
            self.progress,
            done=self.progress.done + len(items),
            entered=dict(Counter(self.progress.entered) + counts_of(entered)),
            skipped=self.progress.skipped + sum(result.skipped for result in results),
            sigma_prompt=self.pipe.guidance.sigma_prompt,
        )
        self.group.agree(lambda: self._save_images(self._part(items, self.group.rank), images))
        self.group.agree(lambda: self._save_round(items, results, progress, entered))
        self.progress = progress
        self.made += len(items)
        self.seconds += max(result.seconds for result in results)
        self.stopped_by = next((result.signal for result in results if result.signal), None)

    def _save_images(self, items: list[Item], images: list[Image]) -> None:
        def save(item: Item, image: Image) -> None:
            row = self.plan.row(item, self.progress.batch_size, self.group.count)
            self.folder.save_image(item.number, image, self.plan.texts(row))

        with ThreadPoolExecutor() as threads:
            list(threads.map(save, items, images))

    def _save_round(
        self, items: list[Item], results: list[_Result], progress: Progress, entered: list[Finished]
    ) -> None:
        if not self.group.is_first:
            return
        rows, timings = [], []
        size = self.progress.batch_size, self.group.count
        for rank, result in enumerate(results):
            for item in (part := self._part(items, rank)):
                rows.append(self.plan.row(item, *size))
                cost = {"seconds": round(result.seconds / len(part), 4)}
                cost["evaluations"] = result.evaluations / len(part)
                timings.append({"file_name": rows[-1]["file_name"], **cost})
        self.folder.finish_batch(rows, timings, progress, entered)

    def _part(self, items: list[Item], rank: int) -> list[Item]:
        size = self.progress.batch_size
        return items[rank * size : (rank + 1) * size]

    def _generate(self, items: list[Item]) -> tuple[_Result, list[Image]]:
        """Generate a batch; there are no images if memory is too small."""
        if not items:
            return _Result([], signal=self.stop.signal), []
        guidance, started = self.pipe.guidance, perf_counter()
        skipped, arguments = guidance.skipped, self._arguments(items)
        if self.on_step is not None:
            arguments |= self.pipe.watched(self.on_step)
        parts = [part for part in vars(self.pipe).values() if isinstance(part, torch.nn.Module)]
        dtypes = {part: getattr(part, "dtype", None) for part in parts}
        images: list[Image] = []
        try:
            counting = rows_counted(self.pipe, guidance.undistilled)
            with guidance.memory.holding() as finished, counting as rows:
                sampler = self.sampler or (lambda pipe, given: pipe(**given).images)
                images = sampler(self.pipe, arguments)
        except (torch.OutOfMemoryError, MemoryError):
            pass
        except BROKEN as error:
            if not should_reduce_batch_size(error):
                raise ValueError(f"the model cannot be sampled: {reason(error)}") from error
        if not images:  # outside of `except`, as the error holds references to tensors
            for part, dtype in dtypes.items():
                if getattr(part, "dtype", None) != dtype:  # some pipelines change the VAE's
                    part.to(dtype)
            clear_device_cache(garbage_collection=True)
            return _Result([], out_of_memory=True), []
        seconds = perf_counter() - started
        found = (guidance.skipped - skipped, guidance.sigma_prompt, sum(rows), self.stop.signal)
        return _Result(finished, seconds, *found), images

    def _arguments(self, items: list[Item]) -> dict[str, Any]:
        """The arguments of the call that generates these images."""
        seeds = [self.plan.options.seed + item.number for item in items]
        torch.manual_seed(seeds[0])  # for schedulers that ignore the call's generators
        arguments = self.plan.sampling.arguments([item.prompt for item in items])
        # on the CPU, so that a seed gives the same noise on every device
        arguments["generator"] = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        return arguments

    def explain(self) -> str:
        """How the next batch would be guided, and why."""
        items = self.plan.items(self.progress.done, self.progress.side_by_side)
        return self.pipe.explain(**self._arguments([*islice(items, self.progress.batch_size)]))

    def _halve_batches(self) -> None:
        size = self.progress.batch_size
        if size == 1:
            raise ValueError(
                "out of memory with one image at a time: use a smaller model, --dtype float16 or "
                "a smaller --diversity-window"
            )
        if self.group.is_first:
            text = "out of memory with %d images at a time: continuing with %d"
            logger.warning(text, size, size // 2)
        self.progress = replace(self.progress, batch_size=size // 2)

    def _share_bandwidth(self, sigma_prompt: float | None) -> None:
        """Use the same prompt bandwidth in every process, once one of them has chosen it."""
        guidance = self.pipe.guidance
        if guidance.settings.sigma_prompt is None and sigma_prompt is not None:
            guidance.settings = replace(guidance.settings, sigma_prompt=sigma_prompt)

    def _begin(self) -> None:
        """Delete an old run, before any process saves an image."""
        if self.group.is_first:
            self.folder.begin(self.plan.manifest, self.progress)


def _enter(window: SlidingWindow, results: list[_Result]) -> list[Finished]:
    """Add the samples of a round to a window, by rank; returns those that stay in it."""
    samples = [
        (latents[-window.size :], prompts if prompts is None else prompts[-window.size :])
        for result in results
        for latents, prompts in result.samples
    ]
    try:
        for each in samples:
            window.append(*each)
    except (RuntimeError, MemoryError) as error:
        raise ValueError(
            f"out of memory for a window of {window.size} samples: choose a smaller "
            "--diversity-window"
        ) from error
    return samples


@contextmanager
def rows_counted(pipe: Any, undistilled: Undistilled = None) -> Iterator[list[int]]:
    """Context that yields a list of the rows of each evaluation, as they occur, by the pipeline's
    networks and the undistilled one (if it is a module)."""
    counts: list[int] = []

    def counted(network: Any, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        counts.append(len(input_of(by_name(network, args, kwargs))))
        return forward(*args, **kwargs)

    with ExitStack() as stack:
        for network in (*(getattr(pipe, name, None) for name in NETWORKS), undistilled):
            if isinstance(network, torch.nn.Module):
                wrap = partial(partial, counted, network)
                stack.enter_context(patched(network, "forward", wrap))
        yield counts
