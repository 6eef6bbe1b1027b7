"""Making the pictures of a run, so that it can be stopped and go on at any moment.

Each of W processes takes the next b pictures, and these W b are a round: made at the same time,
without knowing of one another but for those of the same process. When all are finished, every
process lets all of them enter its window, in their order. Rounds are all or nothing, so a run that
goes on with the same W makes the very same pictures. A run begun by W processes makes W prompts
side by side, a batch of each, so that pictures of a prompt do know of one another.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any, cast

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.guidance.mixins import DiversityGuided
from vendi_guidance.runs.checkpoints import Checkpoint, Progress, RunWindow
from vendi_guidance.runs.distributed import Ranks
from vendi_guidance.runs.folder import RunFolder
from vendi_guidance.runs.manifest import Item, Plan
from vendi_guidance.runs.signals import Stop

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Share:
    """What one process has to tell of a round.

    Attributes:
        finished: latents and prompts that shall enter the window, in parts.
        seconds: that it took.
        skipped: guidance steps left out.
        sigma_prompt: that guidance has settled on, or None.
        signal: that asks to stop, or None.
        out_of_memory: nothing was made.
    """

    finished: list[tuple[Tensor, Tensor | None]]
    seconds: float = 0.0
    skipped: int = 0
    sigma_prompt: float | None = None
    signal: int | None = None
    out_of_memory: bool = False


class LongRun:
    """A run in the making.

    Args:
        pipe: a guided pipeline; its guidance has a `RunWindow`, in the state that belongs to
            `start`.
        plan: what to make.
        folder: where; held by the first process.
        ranks: the processes.
        stop: when to stop before the end.
        start: the opening checkpoint of a run that begins, or how far this one has come.

    Attributes:
        progress: how far it has come.
        made: pictures that it made since it was started or went on.
        seconds: that these took.
        stopped_by: the signal that it stopped for, or None.
    """

    def __init__(
        self,
        pipe: DiversityGuided,
        plan: Plan,
        folder: RunFolder,
        ranks: Ranks,
        stop: Stop,
        start: Checkpoint | Progress,
    ) -> None:
        self.pipe = pipe
        self.plan = plan
        self.folder = folder
        self.ranks = ranks
        self.stop = stop
        self.progress = start.progress if isinstance(start, Checkpoint) else start
        self.made = 0
        self.seconds = 0.0
        self.stopped_by: int | None = None
        self._opening = start if isinstance(start, Checkpoint) else None
        self._skipped_here = 0
        self._warned = False
        self._settle(self.progress.sigma_prompt)

    @property
    def window(self) -> RunWindow:
        return cast(RunWindow, self.pipe.guidance.window)

    def rounds(self) -> Iterator[int]:
        """Make what is missing; yields the number of pictures of each round when they are safe.

        Raises:
            OSError: the folder cannot be written; what was yielded is safe.
            ValueError: a sample does not fit the window, or memory is too small for one picture.
        """
        items = self.plan.items(self.progress.done, self.progress.side_by_side)
        waiting: list[Item] = []
        self.stop.in_hand = "the pictures in hand"
        while self.progress.done < self.plan.total and self.stopped_by is None:
            count = self.progress.batch_size * self.ranks.count
            waiting += islice(items, max(0, count - len(waiting)))
            if self._make_and_save(waiting[:count]):
                made = len(waiting[:count])
                del waiting[:count]
                yield made

    def _make_and_save(self, items: list[Item]) -> bool:
        """One round; False if memory was too small for it."""
        images: list[Image] = []
        mine = self.ranks.agree(lambda: self._make(self._part(items, self.ranks.rank), images))
        shares = self.ranks.share(mine)
        if any(share.out_of_memory for share in shares):
            self._halve()
            return False
        before = self.window.entered
        latents, prompts = self.ranks.agree(lambda: self._enter(shares))
        self._settle(next((share.sigma_prompt for share in shares if share.sigma_prompt), None))
        if self._opening is not None:  # only now is it sure that something takes an old run's place
            self.ranks.agree(self._begin)
        self.ranks.agree(lambda: self._save(items, images))
        self.progress = replace(
            self.progress,
            done=self.progress.done + len(items),
            entered_before=before,
            entered=self.window.entered,
            skipped=self.progress.skipped + sum(share.skipped for share in shares),
            sigma_prompt=self.pipe.guidance.sigma_prompt,
        )
        self.ranks.agree(lambda: self._finish(items, shares, latents, prompts))
        self.made += len(items)
        self.seconds += max(share.seconds for share in shares)
        self.stopped_by = next((share.signal for share in shares if share.signal), None)
        return True

    def _part(self, items: list[Item], rank: int) -> list[Item]:
        """What one process makes of a round."""
        size = self.progress.batch_size
        return items[rank * size : (rank + 1) * size]

    def _make(self, items: list[Item], images: list[Image]) -> _Share:
        """Make pictures into `images`, which stays empty if memory is too small."""
        if not items:
            return _Share([], signal=self.stop.signal)
        seeds = [self.plan.seed_of(item) for item in items]
        torch.manual_seed(seeds[0])  # for schedulers that draw from no generator
        started = perf_counter()
        try:
            with self.window.holding() as finished, _dtypes_kept(self.pipe):
                images += self.pipe(
                    [item.prompt for item in items],
                    # on the CPU, so that a seed means the same noise on every device
                    generator=[torch.Generator("cpu").manual_seed(seed) for seed in seeds],
                    **self.plan.call,
                ).images
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
        if not images:  # now the error is gone, and what it kept alive
            clear_device_cache(garbage_collection=True)
            return _Share([], out_of_memory=True)
        if self.ranks.count > 1:
            finished = [(z.cpu(), None if t is None else t.cpu()) for z, t in finished]
        before, self._skipped_here = self._skipped_here, self.pipe.guidance.skipped
        return _Share(
            finished,
            perf_counter() - started,
            self._skipped_here - before,
            self.pipe.guidance.sigma_prompt,
            self.stop.signal,
        )

    def _halve(self) -> None:
        size = self.progress.batch_size
        if size == 1:
            self.ranks.agree(_refuse_one_picture)
        if not self._warned and self.ranks.is_first:
            self._warned = True
            logger.warning(
                "out of memory with %d pictures at a time: going on with %d, or fewer",
                size,
                size // 2,
            )
        self.progress = replace(self.progress, batch_size=size // 2)

    def _enter(self, shares: list[_Share]) -> tuple[Tensor | None, Tensor | None]:
        """Let all that was finished enter the window, by rank; returns what of it stays."""
        parts = [part for share in shares for part in share.finished]
        if not parts:
            return None, None
        device = self.ranks.device
        latents = torch.cat([z.to(device) for z, _ in parts])
        known = [t.to(device) for _, t in parts if t is not None]
        prompts = torch.cat(known) if known else None
        try:
            self.window.append(latents, prompts)
        except (RuntimeError, MemoryError) as error:
            raise ValueError(
                f"there is no memory for a window of {self.window.size} samples: take a smaller one"
            ) from error
        size = self.window.size
        return latents[-size:], None if prompts is None else prompts[-size:]

    def _settle(self, sigma_prompt: float | None) -> None:
        """Let every process go on with one prompt bandwidth, once one has found it."""
        guidance = self.pipe.guidance
        if guidance.settings.sigma_prompt is None and sigma_prompt is not None:
            guidance.settings = replace(guidance.settings, sigma_prompt=sigma_prompt)

    def _begin(self) -> None:
        if self.ranks.is_first and self._opening is not None:
            self.folder.begin(self.plan.manifest, self._opening)
        self._opening = None

    def _save(self, items: list[Item], images: list[Image]) -> None:
        """Save this process's pictures."""
        origin = self.plan.origin
        for item, image in zip(self._part(items, self.ranks.rank), images, strict=True):
            about = None if origin is None else self._row(item) | origin
            self.folder.save_picture(item.number, image, about)

    def _finish(
        self,
        items: list[Item],
        shares: list[_Share],
        latents: Tensor | None,
        prompts: Tensor | None,
    ) -> None:
        """Write what the first process writes of a round, whose pictures are saved."""
        if not self.ranks.is_first:
            return
        rows, timings = [], []
        for rank, share in enumerate(shares):
            part = self._part(items, rank)
            for row in map(self._row, part):
                rows.append(row)
                seconds = round(share.seconds / len(part), 4)
                timings.append({"file_name": row["file_name"], "seconds": seconds})
        length = self.folder.add_rows(rows, timings)
        self.progress = replace(self.progress, metadata_bytes=length)
        self.folder.finish_batch(Checkpoint(self.progress, latents, prompts))

    def _row(self, item: Item) -> dict[str, object]:
        return self.plan.row(item, self.progress.batch_size, self.ranks.count)


@contextmanager
def _dtypes_kept(pipe: DiversityGuided) -> Iterator[None]:
    """Give parts their dtype back if a call does not come to its end: some decode in another."""
    parts = [part for part in vars(pipe).values() if isinstance(part, torch.nn.Module)]
    before: list[tuple[torch.nn.Module, Any]] = [
        (part, part.dtype) for part in parts if hasattr(part, "dtype")
    ]
    try:
        yield
    except BaseException:
        for part, dtype in before:
            if part.dtype != dtype:
                part.to(dtype)
        raise


def _is_out_of_memory(error: Exception) -> bool:
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or should_reduce_batch_size(error)


def _refuse_one_picture() -> None:
    raise ValueError(
        "out of memory with one picture at a time: take a smaller model, --dtype float16 or a "
        "smaller --diversity-window"
    )
