"""Making the images of a run, so that it can be stopped and resumed at any moment.

Work goes in rounds. In a round, each of W processes makes the next b images, guided away from the
window and from one another, but not from those that the other processes are making. When all are
finished, every process adds all W b to its window, in their order. A run begun by W processes makes
W prompts side by side, so that images of one prompt are made by one process.

A thread in each process writes the images of a round while the next one is made. A round counts
once its images are safe in all processes, and all of it or nothing, so a run resumed with the same
W makes the same images.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple, cast

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.adapter.mixins import DiversityGuided, OnStep
from vendi_guidance.features.weights import reason
from vendi_guidance.runs.checkpoints import Checkpoint, Progress, RunWindow
from vendi_guidance.runs.distributed import ProcessGroup, note_begun
from vendi_guidance.runs.folder import RunFolder
from vendi_guidance.runs.models import BROKEN
from vendi_guidance.runs.plan import Item, Plan
from vendi_guidance.runs.signals import Stop

logger = logging.getLogger(__name__)


class Generated(NamedTuple):
    """What a call of the pipeline gave.

    Attributes:
        evaluations: rows that passed through the network; None if they were not counted.
    """

    images: list[Image]
    evaluations: int | None = None


@dataclass(frozen=True)
class Sampler:
    """How images are generated with the pipeline.

    Attributes:
        generate: makes a batch with a pipeline and the arguments of its call, among them one
            generator each.
        about: what `metadata.jsonl` says of it, JSON values.
    """

    generate: Callable[[DiversityGuided, dict[str, Any]], Generated]
    about: dict[str, Any] = field(default_factory=dict)


PLAIN = Sampler(lambda pipe, arguments: Generated(pipe(**arguments).images))
"""A call as it is."""


class _Result(NamedTuple):
    """What one process tells the others of a round."""

    latents: Tensor | None = None  # (b, ...), for the window
    prompts: Tensor | None = None  # (b, m)
    seconds: float = 0.0
    skipped: int = 0  # guidance steps
    sigma_prompt: float | None = None  # the prompt bandwidth that guidance has settled on
    evaluations: int | None = None
    signal: int | None = None  # a request to stop
    out_of_memory: bool = False  # nothing was made


class _Round(NamedTuple):
    """What has been made, and is not yet safe."""

    items: list[Item]
    images: list[Image]  # of this process
    results: list[_Result]  # of each process
    checkpoint: Checkpoint  # after it


@dataclass(eq=False)
class Runner:
    """Makes a run."""

    pipe: DiversityGuided  # its guidance has a `RunWindow`, in the state that belongs to `progress`
    plan: Plan
    folder: RunFolder  # locked by the first process
    group: ProcessGroup
    stop: Stop  # tells when to stop early
    progress: Progress
    opening: Checkpoint | None  # the first checkpoint of a new run; None for one that is resumed
    sampler: Sampler = PLAIN
    on_step: OnStep | None = field(default=None, init=False)  # told of each denoising step
    waits: bool = field(default=False, init=False)  # until a round is safe, to make the next
    made: int = field(default=0, init=False)  # images, since the run was started or resumed
    seconds: float = field(default=0.0, init=False)  # how long these took
    stopped_by: int | None = field(default=None, init=False)  # the signal that stopped the run
    _warned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._settle(self.progress.sigma_prompt)

    @property
    def window(self) -> RunWindow:
        return cast(RunWindow, self.pipe.guidance.window)

    def rounds(self) -> Iterator[int]:
        """Make what is missing; yields the number of images of each round once they are safe, which
        is when the next round has been made, unless `waits`.

        Raises:
            OSError: the folder cannot be written; what was yielded is safe.
            ValueError: a sample does not fit the window, or memory is too small for one image.
        """
        items = self.plan.items(self.progress.done, self.progress.side_by_side)
        waiting: list[Item] = []
        done = self.progress.done  # with the round that is being written
        self.stop.in_batch = True
        # however this ends, the round that is being written is written first
        with ThreadPoolExecutor(1, "images") as writer:
            written: list[tuple[_Round, Future[None]]] = []  # one at most
            while done < self.plan.total and self.stopped_by is None:
                count = self.progress.batch_size * self.group.count
                waiting += islice(items, max(0, count - len(waiting)))
                batch, rest = waiting[:count], waiting[count:]
                images: list[Image] = []
                results = self._make_everywhere(batch, images)
                # first, as the writer and its round use the progress and the window as they are
                yield from self._count(written)
                if any(result.out_of_memory for result in results):
                    self.group.agree(self._halve_batches)
                    continue
                waiting, done = rest, done + len(batch)
                made = self._enter_all(batch, images, results)
                written.append((made, writer.submit(self._write, made)))
                if self.waits:
                    yield from self._count(written)
            yield from self._count(written)

    def _make_everywhere(self, items: list[Item], images: list[Image]) -> list[_Result]:
        """One round, of which this process makes `images`."""
        mine = self.group.agree(lambda: self._make(self._part(items, self.group.rank), images))
        shared = self.group.share(mine[2:], latents=mine.latents, prompts=mine.prompts)
        return [_Result(of.get("latents"), of.get("prompts"), *values) for values, of in shared]

    def _enter_all(self, items: list[Item], images: list[Image], results: list[_Result]) -> _Round:
        """Add a round to the window, and let its images be written."""
        before = self.window.entered
        entered = self.group.agree(lambda: _enter(self.window, results, self.group.device))
        self._settle(next((result.sigma_prompt for result in results if result.sigma_prompt), None))
        if self.opening is not None:  # only now is it certain that this run replaces an old one
            self.group.agree(self._begin)
        progress = replace(
            self.progress,
            done=self.progress.done + len(items),
            entered_before=before,
            entered=self.window.entered,
            skipped=self.progress.skipped + sum(result.skipped for result in results),
            sigma_prompt=self.pipe.guidance.sigma_prompt,
        )
        self.stopped_by = next((result.signal for result in results if result.signal), None)
        return _Round(items, images, results, Checkpoint(progress, *entered))

    def _write(self, made: _Round) -> None:
        """Save the images of this process; without others, the round then counts."""
        origin, items = self.plan.origin, self._part(made.items, self.group.rank)
        for item, image in zip(items, made.images, strict=True):
            row = self.plan.row(item, self.progress.batch_size, self.group.count)
            about = None if origin is None else row | origin
            self.folder.save_image(item.number, image, about)
        if self.group.count == 1:
            self._finish(made)

    def _count(self, written: list[tuple[_Round, Future[None]]]) -> Iterator[int]:
        """Wait until the round that is being written, if any, is safe in all processes; yields its
        number of images."""
        if written:
            made, writing = written.pop()
            self.group.agree(writing.result)
            if self.group.count > 1:
                self.group.agree(lambda: self._finish(made))
            self.progress = made.checkpoint.progress
            self.made += len(made.items)
            self.seconds += max(result.seconds for result in made.results)
            yield len(made.items)

    def _part(self, items: list[Item], rank: int) -> list[Item]:
        size = self.progress.batch_size
        return items[rank * size : (rank + 1) * size]

    def _make(self, items: list[Item], images: list[Image]) -> _Result:
        """Make images into `images`, which stays empty if memory is too small."""
        if not items:
            return _Result(signal=self.stop.signal)
        seeds = [self.plan.options.seed + item.number for item in items]
        torch.manual_seed(seeds[0])  # for schedulers that draw from no generator
        started = perf_counter()
        skipped = self.pipe.guidance.skipped
        # on the CPU, so that a seed means the same noise on every device
        generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        arguments = self.plan.sampling.arguments([item.prompt for item in items])
        arguments["generator"] = generators
        if self.on_step is not None:
            arguments |= self.pipe.watched(self.on_step)
        try:
            with self.pipe.guidance.memory.holding() as finished, _dtypes_restored(self.pipe):
                generated = self.sampler.generate(self.pipe, arguments)
            latents = _joined([latents for latents, _ in finished])
            prompts = _joined([prompts for _, prompts in finished if prompts is not None])
            images += generated.images
        except (torch.OutOfMemoryError, MemoryError):
            pass
        except BROKEN as error:
            if not should_reduce_batch_size(error):
                raise ValueError(f"the model cannot be sampled: {reason(error)}") from error
        if not images:  # the error, and the memory that it held, are gone by now
            clear_device_cache(garbage_collection=True)
            return _Result(out_of_memory=True)
        seconds, guidance = perf_counter() - started, self.pipe.guidance
        found = (guidance.skipped - skipped, guidance.sigma_prompt, generated.evaluations)
        return _Result(latents, prompts, seconds, *found, self.stop.signal)

    def _halve_batches(self) -> None:
        size = self.progress.batch_size
        if size == 1:
            raise ValueError(
                "out of memory with one image at a time: use a smaller model, --dtype float16 or "
                "a smaller --diversity-window"
            )
        if not self._warned and self.group.is_first:
            text = "out of memory with %d images at a time: going on with %d, or fewer"
            logger.warning(text, size, size // 2)
        self._warned = True
        self.progress = replace(self.progress, batch_size=size // 2)

    def _settle(self, sigma_prompt: float | None) -> None:
        """Use one prompt bandwidth in every process, once one of them has found it."""
        guidance = self.pipe.guidance
        if guidance.settings.sigma_prompt is None and sigma_prompt is not None:
            guidance.settings = replace(guidance.settings, sigma_prompt=sigma_prompt)

    def _begin(self) -> None:
        """Delete an old run, before any process saves an image."""
        if self.group.is_first and self.opening is not None:
            self.folder.begin(self.plan.manifest, self.opening)
            note_begun(self.folder.path)
        self.opening = None

    def _finish(self, made: _Round) -> None:
        """Let a round count, all of whose images are safe."""
        if self.group.is_first:
            rows, timings = [], []
            size = self.progress.batch_size, self.group.count
            for rank, result in enumerate(made.results):
                part = [self.plan.row(item, *size) for item in self._part(made.items, rank)]
                cost = {"seconds": round(result.seconds / max(1, len(part)), 4)}
                if result.evaluations is not None:
                    cost["evaluations"] = result.evaluations / max(1, len(part))
                rows += part
                timings += [{"file_name": row["file_name"], **cost} for row in part]
            self.folder.finish_batch(rows, timings, made.checkpoint)


def _enter(
    window: RunWindow, results: list[_Result], device: str
) -> tuple[Tensor | None, Tensor | None]:
    """Add all that was finished to a window, by rank; returns what of it stays there."""
    latents = _joined([r.latents.to(device) for r in results if r.latents is not None])
    prompts = _joined([r.prompts.to(device) for r in results if r.prompts is not None])
    if latents is None:
        return None, None
    try:
        window.append(latents, prompts)
    except (RuntimeError, MemoryError) as error:
        raise ValueError(
            f"out of memory for a window of {window.size} samples: choose a smaller "
            "--diversity-window"
        ) from error
    size = window.size
    return latents[-size:], None if prompts is None else prompts[-size:]


def _joined(parts: list[Tensor]) -> Tensor | None:
    return torch.cat(parts) if parts else None


@contextmanager
def _dtypes_restored(pipe: DiversityGuided) -> Iterator[None]:
    """Restore the dtypes of the model's parts if a call fails: some change one to decode."""
    parts = [part for part in vars(pipe).values() if isinstance(part, torch.nn.Module)]
    before: list[tuple[Any, Any]] = [(part, part.dtype) for part in parts if hasattr(part, "dtype")]
    try:
        yield
    except BaseException:
        for part, dtype in before:
            if part.dtype != dtype:
                part.to(dtype)
        raise
