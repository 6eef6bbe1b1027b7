"""Runs with one model and other settings, each in a folder of its own, one after the other."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vendi_guidance.adapter.undistilled import Undistilled
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.runner import PLAIN, Sampler
from vendi_guidance.runs.setup import Model, find, load, open_run
from vendi_guidance.runs.signals import Stop
from vendi_guidance.runs.undistilled import load_undistilled


@dataclass(eq=False)
class Sweep:
    """Makes runs.

    Attributes:
        options: of all runs. `output` is the folder of their folders.
        on_images: called with the number of images that were made or found.
        tell: called with remarks for the user, see `open_run`.
    """

    options: RunOptions
    stop: Stop
    on_images: Callable[[int], object] = field(default=lambda count: None)
    tell: Callable[[str], object] = field(default=lambda remark: None)

    @cached_property
    def model(self) -> Model:
        """The model, found once.

        Raises:
            ValueError, OSError, ImportError: it, or an option, cannot be used.
        """
        return find(self.options)

    @cached_property
    def pipe(self) -> Any:
        """The model, loaded once."""
        return load(self.model, self.options.device)

    @cached_property
    def undistilled(self) -> Undistilled:
        """The network that the model was distilled from, if one is named, loaded once."""
        return load_undistilled(self.model.undistilled, self.model.options, self.options.device)

    def generate(
        self,
        name: str,
        diversity: dict[str, Any],
        *,
        sampler: Sampler = PLAIN,
        **changes: Any,
    ) -> Path:
        """Make the run of this name, or what is missing of it.

        Args:
            diversity: settings of guidance, the dial as "strength".
            changes: of other options.

        Returns:
            Its folder.

        Raises:
            SystemExit: a signal asked to stop; the run goes on next time.
            ValueError, OSError: it cannot be made.
        """
        folder = self.options.output / name
        changes = {"diversity": diversity, "output": folder, "resume": True, **changes}
        options = replace(self.model.options, **changes)
        with ExitStack() as stack:
            group = ProcessGroup(0, 1, options.device)
            loaded = self.pipe, sampler, self.tell, self.undistilled
            run = open_run(options, group, self.stop, stack, *loaded)
            self.on_images(run.progress.done)
            for made in run.rounds():
                self.on_images(made)
            if run.stopped_by is not None:
                raise SystemExit(128 + run.stopped_by)
        self.stop.in_batch = False
        return folder
