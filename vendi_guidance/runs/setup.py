"""From the command line of generate.py to a run that can be made."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import click
import torch

from vendi_guidance import (
    SlidingWindow,
    VendiGuidance,
    VendiGuidedFluxPipeline,
    VendiGuidedPixArtAlphaPipeline,
    VendiGuidedPixArtSigmaPipeline,
    VendiGuidedSDXLPipeline,
)
from vendi_guidance.runs.checkpoints import Checkpoint, Progress, RunWindow
from vendi_guidance.runs.distributed import Ranks
from vendi_guidance.runs.folder import RunFolder
from vendi_guidance.runs.manifest import Input, Manifest, Plan, versions
from vendi_guidance.runs.models import check_model, fingerprint, load_model
from vendi_guidance.runs.runner import LongRun
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.files import sha256_of
from vendi_guidance.storage.prompt_files import open_prompts

PIPELINES: dict[str, Any] = {
    "sdxl": VendiGuidedSDXLPipeline,
    "pixart-alpha": VendiGuidedPixArtAlphaPipeline,
    "pixart-sigma": VendiGuidedPixArtSigmaPipeline,
    "flux": VendiGuidedFluxPipeline,
}
DEFAULT_WINDOW = 300


@dataclass(frozen=True)
class Order:
    """The options given, by their names.

    Attributes:
        diversity: those that begin with `diversity_`, but for the window's size: a preset, and
            fields of `Settings`, None where not given.
    """

    prompts: str
    model: Path
    pipeline: str
    steps: int
    guidance_scale: float
    images_per_prompt: int
    batch_size: int
    seed: int
    diversity_window: int | None
    window_in: Path | None
    window_out: Path | None
    output: Path
    overwrite: bool
    resume: bool
    no_metadata: bool
    device: str
    dtype: str
    diversity: dict[str, Any]

    def check(self) -> None:
        """Raise ValueError or OSError for what can be known to be wrong before anything is read."""
        if not isfinite(self.guidance_scale):
            raise ValueError(f"guidance-scale must be a finite number, got {self.guidance_scale}")
        if self.overwrite and self.resume:
            raise ValueError("--overwrite begins anew and --resume goes on: give one of them")
        check_model(self.model)
        if self.window_out is not None and not self.window_out.absolute().parent.is_dir():
            raise FileNotFoundError(f"there is no folder for --window-out {self.window_out}")
        if self.output.exists() and not self.output.is_dir():
            raise FileExistsError(f"--output {self.output} is a file: name a folder")


def open_run(order: Order, ranks: Ranks, stop: Stop, stack: ExitStack) -> LongRun:
    """The run that is ordered, at its beginning or where it was left; every process calls this.

    Args:
        stack: keeps the folder locked.

    Raises:
        ValueError, OSError: it cannot be made; the message says why.
    """

    def prepare() -> tuple[Plan, VendiGuidance, RunWindow, Checkpoint]:
        order.check()
        window, opening = _open_window(order, ranks)
        guidance = _guidance(order, window)
        return _plan(order, guidance), guidance, window, opening

    plan, guidance, window, opening = ranks.agree(prepare)
    folder = RunFolder(order.output, window.size)
    ranks.agree(lambda: _claim(order, folder, plan.manifest, stack) if ranks.is_first else None)

    def load() -> LongRun:
        pipeline = PIPELINES[order.pipeline]
        pipe = load_model(pipeline, order.model, order.dtype, ranks.device)
        pipe.guidance = guidance
        done = folder.checkpoints.last() if order.resume else None
        if done is None:
            opening.enter(window, ranks.device)
        else:
            folder.checkpoints.restore(window, ranks.device)
        return LongRun(pipe, plan, folder, ranks, stop, done or opening)

    return ranks.agree(load)


def _plan(order: Order, guidance: VendiGuidance) -> Plan:
    """What shall be made."""
    prompts = open_prompts(order.prompts)
    chosen = asdict(guidance.settings)
    del chosen["beta"]  # of exemplars, and there are none
    look = {
        "pipeline": order.pipeline,
        "steps": order.steps,
        "guidance_scale": order.guidance_scale,
        "batch_size": order.batch_size,
        "dtype": order.dtype,
        "diversity_window": guidance.window.size,
        **{f"diversity_{name}": value for name, value in chosen.items()},
    }
    settings = look | {
        "images_per_prompt": order.images_per_prompt,
        "seed": order.seed,
        "device": torch.device(order.device).type,
        "no_metadata": order.no_metadata,
        # at scale 0, only for this is anything remembered
        "window_out": order.window_out is not None or guidance.settings.scale > 0,
    }
    window_in = order.window_in
    model = Input(str(order.model), fingerprint(order.model))
    inputs = {
        "prompts": Input(order.prompts, prompts.sha256),
        "model": model,
        "window_in": None if window_in is None else Input(str(window_in), sha256_of(window_in)),
    }
    manifest = Manifest(settings, inputs, versions())
    return Plan(
        prompts=prompts,
        images_per_prompt=order.images_per_prompt,
        at_a_time=order.batch_size,
        seed=order.seed,
        call={"num_inference_steps": order.steps, "guidance_scale": order.guidance_scale},
        about={"model": model.name, **look},
        origin=None
        if order.no_metadata
        else {"model_sha256": model.sha256, "versions": manifest.versions},
        manifest=manifest,
    )


def _claim(order: Order, folder: RunFolder, manifest: Manifest, stack: ExitStack) -> None:
    """Lock the folder, and see that this run can be made or go on in it.

    Raises:
        ValueError: the run there was begun otherwise, or is damaged.
        FileExistsError: the folder is not free.
    """
    stack.enter_context(folder.locked())
    began = folder.find() if order.resume else None
    if began is None:
        if not order.overwrite and not folder.is_empty():
            lacks = ": it has no run.json" if order.resume else ""
            raise FileExistsError(
                f"--output {folder.path} is not empty{lacks}: name another folder, go on with the "
                "run in it with --resume, or replace that with --overwrite"
            )
        return
    differences = manifest.differences(began)
    if differences:
        raise ValueError(
            f"the run in {folder.path} was begun otherwise: {'; '.join(differences)}; resume it as "
            "it was begun, or name another folder"
        )
    for change in manifest.version_changes(began):
        click.echo(f"{change}: pictures may differ in rounding", err=True)
    folder.recover()


def _open_window(order: Order, ranks: Ranks) -> tuple[RunWindow, Checkpoint]:
    """An empty window, and what enters it before any picture."""
    if order.window_in is None:
        window = RunWindow(order.diversity_window or DEFAULT_WINDOW)
        return window, Checkpoint(Progress(0, 0, order.batch_size, side_by_side=ranks.count))
    known = SlidingWindow.load(order.window_in, ranks.device)
    if order.diversity_window is not None:
        known.resize(order.diversity_window)
    window = RunWindow(known.size, dtype=known.dtype, device=known.device)
    progress = Progress(
        0, 0, order.batch_size, entered_before=0, entered=len(known), side_by_side=ranks.count
    )
    if known.latent_shape is None:
        return window, Checkpoint(progress)
    return window, Checkpoint(
        progress, known.latents.unflatten(1, known.latent_shape), known.prompts
    )


def _guidance(order: Order, window: RunWindow) -> VendiGuidance:
    return VendiGuidance(
        window=window,
        prompt_input=PIPELINES[order.pipeline].prompt_input,
        record=order.window_out is not None,
        **order.diversity,
    )


def check_device(device: str) -> None:
    try:
        usable = torch.empty(0, device=device).device.type != "meta"
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here: {reason}") from None
    if not usable:
        raise ValueError(f"device {device!r} holds no numbers: use cpu or cuda")
