"""Generates the same prompts and seeds without and with guidance, as two runs that take turns.

These are runs like those of `vendi-guidance generate`, in folders of the session. The guided run
begins with the session's memory and adds its images to it.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from vendi_guidance.app.request import Request
from vendi_guidance.app.session import ARMS, Arm, Generation, Session
from vendi_guidance.checks import check_device
from vendi_guidance.guidance.window import WINDOW, SlidingWindow
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.setup import find, load, open_run
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.prompt_files import save_prompts

BETA = 1.0
"""Weight of the example images: a lower weight has little effect, a higher one makes all images
alike."""

OnProgress = Callable[[float, str], None]
"""Called with the share of a generation that is done, and a description of the current step."""


class StopGenerating(Exception):  # noqa: N818
    """Raised within a pipeline call when the visitor presses Stop."""


class Studio:
    """A loaded model with which sessions take turns to generate.

    Args:
        options: options of the runs. Prompts, output and the fields of a `Request` are replaced.

    Raises:
        ValueError, OSError, ImportError: the model cannot be used; the message says why.
    """

    def __init__(self, options: RunOptions) -> None:
        check_device(options.device)
        self.model = find(options)
        self.options = self.model.options
        self._pipe = load(self.model, options.device)
        self._lock = Lock()
        # features and prompt embedding of one image, as in a memory, once they are known
        self._sample: tuple[Tensor, Tensor] | None = None

    @property
    def name(self) -> str:
        """The model's name; for a path, its last part."""
        name = self.options.model
        return Path(name).resolve().name if Path(name).exists() else name

    def truncated(self, prompt: str) -> tuple[int, str]:
        """The number of tokens that the model reads, and the rest of the prompt beyond them."""
        call = inspect.signature(type(self._pipe).__call__).parameters
        longest = getattr(call.get("max_sequence_length"), "default", None)
        found = []
        for tokenizer in self._pipe.components.values():
            if isinstance(tokenizer, PreTrainedTokenizerBase):
                limit = tokenizer.model_max_length
                limit = min(limit, longest) if isinstance(longest, int) else limit
                limit -= tokenizer.num_special_tokens_to_add()
                tokens = tokenizer(prompt, add_special_tokens=False, verbose=False).input_ids
                found.append((limit, tokenizer.decode(tokens[limit:])))
        return max(found, default=(0, ""))  # of the encoder that reads most

    def check_memory(self, window: SlidingWindow) -> None:
        """Raise ValueError if a memory holds prompt embeddings of another text encoder.

        The model's own embeddings are known once it has generated an image.
        """
        if self._sample is not None:
            features, prompts = self._sample
            window.of_shape(features.shape[1:]).check(features, prompts)

    def generate(
        self, session: Session, request: Request, on_progress: OnProgress
    ) -> Iterator[Generation]:
        """Generate for a session; yields its generation after each batch of images.

        `session.stop` ends it after the current denoising step; finished batches are kept.

        Raises:
            ValueError, OSError: the images cannot be generated; the message says why.
        """
        with session.alone(), ExitStack() as stack:
            stack.callback(session.stop.clear)
            generation = Generation(session.new_folder(), request, {})
            for name in ARMS:
                generation.arms[name] = self._open(name, generation, session, stack)
            session.generation = generation
            session.window = generation.arms[ARMS[-1]].window
            batches = len(ARMS) * math.ceil(request.total / request.batch_size)
            made, name = 0, ""

            def on_step(step: int, steps: int) -> None:
                if session.stop.is_set():
                    raise StopGenerating
                # at most 1: batches are halved, and become more, if memory runs out
                share = min(1.0, (made + step / steps) / batches)
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
                    window = generation.arms[ARMS[0]].window  # all by this model
                    if window.latent_shape is not None and window.prompts is not None:
                        self._sample = torch.empty(1, *window.latent_shape), window.prompts[:1]
                    yield generation

    def _open(self, name: str, generation: Generation, session: Session, stack: ExitStack) -> Arm:
        request, folder = generation.request, generation.folder
        diversity: dict[str, Any] = {"diversity": 0.0}
        memory = None
        if name == ARMS[-1]:
            diversity = {"diversity": request.strength}
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
            window_out=folder / f"{name}.safetensors",  # lets diversity 0 remember images, too
            diversity=self.options.diversity | diversity,
        )
        with self._lock:
            group = ProcessGroup(0, 1, options.device)
            return Arm(open_run(options, group, Stop(), stack, self._pipe))
