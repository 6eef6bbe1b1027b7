"""Generates the same prompts and seeds without and with guidance and scores them, as two runs like
those of `vendi-guidance generate` that take turns; the guided one continues the session's memory.
"""

import math
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from zipfile import ZIP_STORED, ZipFile

from diffusers import StableDiffusionXLPipeline

from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import compare, evaluate
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.results import Comparison
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import open_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.guidance.window import WINDOW, SlidingWindow
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.loading import find, load
from vendi_guidance.runs.plan import RunOptions
from vendi_guidance.runs.runner import Runner
from vendi_guidance.runs.setup import open_run
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.imagefolder import image_name
from vendi_guidance.storage.prompt_files import fault_of, save_prompts

ARMS = ("without", "with")  # guidance: the two runs of a generation, and their folders
MOST_PROMPTS = 8
LONGEST_PROMPT = 500


@dataclass(frozen=True)
class Request:
    """Images to generate. Raises ValueError for a missing number, and for no prompts, too many, or
    one that is too long or invalid; Gradio checks the ranges of numbers."""

    text: str | None  # prompts, one per line; a repeated one counts once
    images: int  # for each prompt
    diversity: float
    seed: int  # of the first image

    def __post_init__(self) -> None:
        prompts = self.prompts
        if None in (self.images, self.diversity, self.seed):
            raise ValueError("A number is missing: fill in every field.")
        if not 1 <= len(prompts) <= MOST_PROMPTS or max(map(len, prompts)) > LONGEST_PROMPT:
            limits = f"1 to {MOST_PROMPTS} prompts of at most {LONGEST_PROMPT} characters"
            raise ValueError(f"Write {limits}, one per line.")
        for fault in filter(None, map(fault_of, prompts)):
            raise ValueError(f"A prompt {fault}.")

    @property
    def prompts(self) -> list[str]:
        return list(dict.fromkeys(filter(None, map(str.strip, (self.text or "").splitlines()))))


@dataclass
class Generation:
    """The images of one request."""

    folder: Path
    request: Request
    runs: dict[str, Runner] = field(default_factory=dict)  # by arm
    comparison: Comparison | None = None  # once the images are scored

    def images(self, arm: str) -> list[Path]:
        """The finished images of an arm, in order."""
        run = self.runs[arm]
        return [run.folder.path / image_name(number) for number in range(run.progress.done)]


@dataclass
class Session:
    """The state of one visitor's page; sessions share only the model."""

    folder: Path  # for its files; deleted when the session ends
    window: SlidingWindow = field(default_factory=lambda: SlidingWindow(WINDOW))
    generation: Generation | None = None
    stop: Event = field(default_factory=Event)  # ends a generation after the current step

    def pack(self) -> Path:
        """Write a zip file of the finished images, an imagefolder for each arm, with the memory
        and, if the images are scored, the report; ValueError if no image is finished."""
        generation = self.generation
        if generation is None or not generation.images("without"):
            raise ValueError("There are no images yet: generate some first.")
        self.window.save(generation.folder / "memory.safetensors")
        if generation.comparison is not None:
            generation.comparison.save(generation.folder / "report")
        path = self.folder / "images.zip"
        with ZipFile(path, "w", ZIP_STORED) as packed:
            for files in ("memory.safetensors", "with*/[!.]*", "with/memory/*", "report/*"):
                for file in sorted(generation.folder.glob(files)):
                    packed.write(file, file.relative_to(generation.folder))
        return path


class StopGenerating(Exception):  # noqa: N818
    """Stops a pipeline call from within."""


class Studio:
    """A loaded model with which sessions take turns to generate, and what scores its images.

    Args:
        options: of the runs; prompts, output and the fields of a `Request` are replaced.
        images: name of an image embedder, as for `evaluate`; None is the probe's, or pixels.
        probe: folder of a classifier of looks; None is the one beside a demo model, if any.

    Raises:
        ValueError, OSError, ImportError: one of these cannot be used; the message says why.
    """

    def __init__(
        self, options: RunOptions, images: str | None = None, probe: Path | None = None
    ) -> None:
        self.model = find(options)
        self.options = self.model.options
        self.name = Path(options.model).resolve().name
        self.probe = probe or probe_beside(self.model.folder)
        images = images or (f"probe:{self.probe}" if self.probe else "pixels")
        is_sdxl = self.model.pipeline.stock is StableDiffusionXLPipeline
        prompts = f"sdxl:{self.model.folder}" if is_sdxl else "words"
        self._embedding = Embedding(
            open_image_embedder(images, device=options.device),
            open_prompt_embedder(prompts, device=options.device),
        )
        self._loaded = load(self.model, options.device)
        self._lock = Lock()
        self.width: int | None = None  # of the model's prompt embeddings, once known

    def generate(
        self, session: Session, request: Request, on_progress: Callable[[float, str], object]
    ) -> Iterator[Generation]:
        """Generate for a session; yields its generation after each batch of images.

        `session.stop` ends it after the current step; finished batches are kept. `on_progress` gets
        the share that is done and a description. ValueError or OSError if generation fails.
        """

        def on_step(step: int, steps: int) -> None:
            if session.stop.is_set():
                raise StopGenerating
            # at most 1: batches are halved, and become more, if memory runs out
            share = min(1.0, (made + step / steps) / batches)
            on_progress(share, f"{arm} guidance, step {step} of {steps}")

        with ExitStack() as stack, suppress(StopGenerating):
            stack.callback(session.stop.clear)
            generation = session.generation = Generation(session.folder / "generation", request)
            shutil.rmtree(generation.folder, ignore_errors=True)
            generation.folder.mkdir()
            for arm in ARMS:
                run = generation.runs[arm] = self._open(arm, session, request, stack)
                run.on_step = on_step
            session.window = generation.runs["with"].window
            # the page shows a batch as soon as it is generated
            turns = deque((arm, run.rounds()) for arm, run in generation.runs.items())
            made, count = 0, len(request.prompts) * request.images
            batches = len(ARMS) * math.ceil(count / self.options.batch_size)
            while turns:
                arm, rounds = turns.popleft()
                with self._lock:
                    is_over = next(rounds, None) is None
                if not is_over:
                    made += 1
                    turns.append((arm, rounds))
                    prompts = generation.runs["without"].window.prompts
                    self.width = None if prompts is None else prompts.shape[1]
                    yield generation

    def _open(self, arm: str, session: Session, request: Request, stack: ExitStack) -> Runner:
        folder = session.folder / "generation"
        memory = folder / "earlier.safetensors" if arm == "with" and len(session.window) else None
        if memory is not None:
            session.window.save(memory)
        dial = {"diversity": request.diversity if arm == "with" else 0.0}
        options = replace(
            self.options,
            prompts=str(save_prompts(folder / "prompts.jsonl", request.prompts)),
            images_per_prompt=request.images,
            seed=request.seed,
            output=folder / arm,
            diversity_window=WINDOW,
            window_in=memory,
            window_out=folder / f"{arm}.safetensors",  # lets diversity 0 remember images, too
            diversity=self.options.diversity | dial,
        )
        with self._lock:
            group = ProcessGroup(0, 1, options.device)
            return open_run(options, group, Stop(), stack, self._loaded)

    def compare(self, generation: Generation) -> Comparison:
        """Compare the two arms; ValueError if there are too few images for any score."""
        embedding, reports = self._embedding, []
        judges = Judges(labels=open_probe(self.probe, generation.request.prompts))
        for arm, run in generation.runs.items():
            folder, name = run.folder.path, f"{arm} guidance"
            report = evaluate(folder, name=name, embedding=embedding, judges=judges)
            embedding = embedding.with_kernels_of(report.inputs)
            reports.append(report)
        return compare(*reports)


def probe_beside(model: Path) -> Path | None:
    """The folder of the classifier for a demo model's images, next to the model's own folder."""
    folders = [model.parent / name for name in (f"{model.name}-probe", "demo-probe")]
    return next((folder for folder in folders if folder.is_dir()), None)
