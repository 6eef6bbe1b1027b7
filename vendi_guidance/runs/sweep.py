"""Several runs of one model with different settings, each in its own folder."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.runner import PLAIN, Sampler
from vendi_guidance.runs.setup import Loaded, Model, find, load, open_run
from vendi_guidance.runs.signals import Stop


@dataclass(eq=False)
class Sweep:
    """Generates runs one after the other, and loads their model once."""

    options: RunOptions  # shared by all runs; `output` is the parent of their folders
    stop: Stop
    # called with the number of images that a run has just generated or already had
    on_images: Callable[[int], object] = field(default=lambda count: None)
    tell: Callable[[str], object] = field(default=lambda remark: None)  # see `open_run`

    @cached_property
    def model(self) -> Model:
        """The model, not yet loaded; ValueError, OSError or ImportError if it cannot be used."""
        return find(self.options)

    @cached_property
    def _loaded(self) -> Loaded:
        return load(self.model, self.options.device)

    def generate(
        self, name: str, diversity: dict[str, Any], *, sampler: Sampler = PLAIN, **changes: Any
    ) -> Path:
        """Generate the run with this name, guidance settings and other changes of the options, or
        resume it if its folder, which is returned, exists. ValueError or OSError if it fails;
        SystemExit if a signal asked to stop, after which the next call resumes it.
        """
        folder = self.options.output / name
        changes = {"diversity": diversity, "output": folder, "resume": True, **changes}
        options = replace(self.model.options, **changes)
        with ExitStack() as stack:
            group = ProcessGroup(0, 1, options.device)
            run = open_run(options, group, self.stop, stack, self._loaded, sampler, self.tell)
            self.on_images(run.progress.done)
            for made in run.rounds():
                self.on_images(made)
            if run.stopped_by is not None:
                raise SystemExit(128 + run.stopped_by)
        self.stop.in_batch = False
        return folder
