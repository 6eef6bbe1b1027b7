"""Drawing: the same prompts and seeds without and with guidance, as two runs that take turns.

They are runs as `vendi-guidance generate` makes them, in folders of the session. The guided one
begins with the session's memory, and goes on with it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from vendi_guidance.app.request import Request
from vendi_guidance.app.session import ARMS, Arm, Drawing, Session
from vendi_guidance.checks import check_device
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.runner import Runner
from vendi_guidance.runs.setup import (
    DEFAULT_WINDOW,
    RunOptions,
    find,
    load,
    open_run,
    settled,
)
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.files import whole_file

BETA = 1.0
"""The weight of pictures that others may be like: with less they attract little, with more all
pictures become alike."""

OnProgress = Callable[[float, str], None]
"""Gets the share of a drawing that is done, and what is being made."""


class StopDrawing(Exception):  # noqa: N818
    """The visitor has asked to stop."""


@dataclass
class _Turn:
    """A run of a drawing."""

    run: Runner
    guidance: Any
    rounds: Iterator[int]
    arm: Arm


class Studio:
    """A loaded model that sessions take turns to draw with.

    Args:
        options: what a run needs; prompts, output and what a `Request` has are replaced.

    Raises:
        ValueError, OSError, ImportError: the model cannot be used; the message says why.
    """

    def __init__(self, options: RunOptions) -> None:
        options.check()
        check_device(options.device)
        self.model = find(options)
        self.options = settled(options, self.model)
        self._pipe = load(self.options, self.model, options.device)
        self._lock = Lock()

    def draw(
        self, session: Session, request: Request, on_progress: OnProgress
    ) -> Iterator[Drawing]:
        """Draw for a session; yields its drawing after each batch of pictures.

        `session.stop` ends it after the current denoising step; finished batches stay.

        Raises:
            ValueError, OSError: it cannot be drawn; the message says why.
        """
        with session.alone(), ExitStack() as stack:
            stack.callback(session.stop.clear)
            folder = session.new_folder()
            drawing = Drawing(folder, request, {})
            turns = [self._open(name, drawing, session, stack) for name in ARMS]
            session.drawing = drawing
            session.window = drawing.arms[ARMS[-1]].window
            batches = len(ARMS) * -(-request.total // request.batch_size)
            made = 0
            while turns:
                for turn in list(turns):
                    where = f"{turn.arm.folder.name} guidance, step"
                    turn.run.on_step = _reporter(session, on_progress, where, made, batches)
                    with self._lock:
                        self._pipe.guidance = turn.guidance
                        try:
                            count = next(turn.rounds, None)
                        except StopDrawing:
                            return
                    if count is None:
                        turns.remove(turn)
                        continue
                    made += 1
                    turn.arm.done = turn.run.progress.done
                    turn.arm.entered = turn.run.window.entered
                    yield drawing

    def _open(self, name: str, drawing: Drawing, session: Session, stack: ExitStack) -> _Turn:
        """Begin one of the two runs."""
        request, folder = drawing.request, drawing.folder
        is_guided = name == ARMS[-1]
        diversity: dict[str, Any] = {"strength": request.strength if is_guided else 0.0}
        memory = None
        if is_guided:
            if session.exemplars is not None:
                diversity |= {"exemplars": session.exemplars, "beta": BETA}
            if len(session.window):
                memory = folder / "memory.safetensors"
                session.window.save(memory)
        options = replace(
            self.options,
            prompts=str(_save_prompts(folder / "prompts.jsonl", request.prompts)),
            steps=request.steps,
            guidance_scale=request.guidance_scale,
            images_per_prompt=request.pictures,
            batch_size=request.batch_size,
            seed=request.seed,
            output=folder / name,
            diversity_window=DEFAULT_WINDOW,
            window_in=memory,
            window_out=folder / f"{name}.safetensors",  # remember at strength 0 too
            diversity=self.options.diversity | diversity,
        )
        with self._lock:
            group = ProcessGroup(0, 1, options.device)
            run = open_run(options, group, Stop(), stack, self._pipe)
            guidance = run.pipe.guidance
        arm = Arm(options.output, run.window, run.window.entered, run.window.entered)
        drawing.arms[name] = arm
        return _Turn(run, guidance, run.rounds(), arm)


def _reporter(
    session: Session, on_progress: OnProgress, where: str, made: int, batches: int
) -> Callable[[int, int], None]:
    """What a run calls after each denoising step."""

    def on_step(step: int, steps: int) -> None:
        if session.stop.is_set():
            raise StopDrawing
        share = min(1.0, (made + step / steps) / batches)  # batches are halved if memory is short
        on_progress(share, f"{where} {step} of {steps}")

    return on_step


def _save_prompts(path: Path, prompts: tuple[str, ...]) -> Path:
    lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
    with whole_file(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    return path
