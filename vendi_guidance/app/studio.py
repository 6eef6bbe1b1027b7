"""Generates the same prompts and seeds without and with guidance, as two runs that take turns.

They are runs as `vendi-guidance generate` makes them, in folders of the session. The guided one
begins with the session's memory, and goes on with it.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from vendi_guidance.app.request import Request
from vendi_guidance.app.session import ARMS, Arm, Generation, Session
from vendi_guidance.checks import check_device
from vendi_guidance.guidance.window import WINDOW
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.setup import find, load, open_run
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.prompt_files import save_prompts

BETA = 1.0
"""The weight of images that others may be like: with less they attract little, with more all
images become alike."""

OnProgress = Callable[[float, str], None]
"""Gets the share of a generation that is done, and what is being made."""


class StopGenerating(Exception):  # noqa: N818
    """The visitor has asked to stop."""


class Studio:
    """A loaded model that sessions take turns to generate with.

    Args:
        options: what a run needs; prompts, output and what a `Request` has are replaced.

    Raises:
        ValueError, OSError, ImportError: the model cannot be used; the message says why.
    """

    def __init__(self, options: RunOptions) -> None:
        check_device(options.device)
        self.model = find(options)
        self.options = self.model.options
        self._pipe = load(self.model, options.device)
        self._lock = Lock()

    @property
    def name(self) -> str:
        """The model's, without the folders of a path."""
        name = self.options.model
        return Path(name).resolve().name if Path(name).exists() else name

    def unread(self, prompt: str) -> tuple[int, str]:
        """How many tokens of a prompt the model can read, and the text beyond them, "" if none."""
        call = inspect.signature(type(self._pipe).__call__).parameters
        longest = getattr(call.get("max_sequence_length"), "default", None)
        found = []
        for part in self._pipe.components.values():
            if isinstance(part, PreTrainedTokenizerBase):
                room = part.model_max_length
                room = min(room, longest) if isinstance(longest, int) else room
                room -= part.num_special_tokens_to_add()
                tokens = part(prompt, add_special_tokens=False, verbose=False).input_ids
                found.append((room, part.decode(tokens[room:])))
        return max(found, default=(0, ""))  # the encoder that reads most

    def generate(
        self, session: Session, request: Request, on_progress: OnProgress
    ) -> Iterator[Generation]:
        """Generate for a session; yields its generation after each batch of images.

        `session.stop` ends it after the current denoising step; finished batches stay.

        Raises:
            ValueError, OSError: it cannot be generated; the message says why.
        """
        with session.alone(), ExitStack() as stack:
            stack.callback(session.stop.clear)
            generation = Generation(session.new_folder(), request, {})
            for name in ARMS:
                generation.arms[name] = self._open(name, generation, session, stack)
            session.generation = generation
            session.window = generation.arms[ARMS[-1]].window
            batches = len(ARMS) * -(-request.total // request.batch_size)
            made, name = 0, ""

            def on_step(step: int, steps: int) -> None:
                if session.stop.is_set():
                    raise StopGenerating
                share = min(1.0, (made + step / steps) / batches)  # batches may be halved
                on_progress(share, f"{name} guidance, step {step} of {steps}")

            unfinished = dict(generation.arms)
            while unfinished:
                for name, arm in list(unfinished.items()):
                    arm.run.on_step = on_step
                    with self._lock:
                        self._pipe.guidance = arm.guidance
                        try:
                            count = next(arm.rounds, None)
                        except StopGenerating:
                            return
                    if count is None:
                        del unfinished[name]
                        continue
                    made += 1
                    yield generation

    def _open(self, name: str, generation: Generation, session: Session, stack: ExitStack) -> Arm:
        request, folder = generation.request, generation.folder
        diversity: dict[str, Any] = {"strength": 0.0}
        memory = None
        if name == ARMS[-1]:
            diversity = {"strength": request.strength}
            if session.liked:
                diversity |= {"exemplars": torch.stack(session.liked), "beta": BETA}
            if len(session.window):
                memory = folder / "memory.safetensors"
                session.window.save(memory)
        options = replace(
            self.options,
            prompts=str(save_prompts(folder / "prompts.jsonl", request.prompts)),
            steps=request.steps,
            guidance_scale=request.guidance_scale,
            images_per_prompt=request.images,
            batch_size=request.batch_size,
            seed=request.seed,
            output=folder / name,
            diversity_window=WINDOW,
            window_in=memory,
            window_out=folder / f"{name}.safetensors",  # remember at strength 0 too
            diversity=self.options.diversity | diversity,
        )
        with self._lock:
            group = ProcessGroup(0, 1, options.device)
            return Arm(open_run(options, group, Stop(), stack, self._pipe))
