"""From the options of `vendi-guidance generate` to a run that can be made."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import click
import torch

from vendi_guidance.guidance.callback import VendiGuidance
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.pipelines.vendi_guided_flux import VendiGuidedFluxPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_alpha import VendiGuidedPixArtAlphaPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import VendiGuidedPixArtSigmaPipeline
from vendi_guidance.pipelines.vendi_guided_sdxl import VendiGuidedSDXLPipeline
from vendi_guidance.runs.checkpoints import Checkpoint, Progress, RunWindow
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.folder import RunFolder
from vendi_guidance.runs.manifest import MANIFEST, Input, Manifest, versions
from vendi_guidance.runs.models import check_model, fingerprint, load_model
from vendi_guidance.runs.plan import Plan
from vendi_guidance.runs.runner import Runner
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
class RunOptions:
    """The options of the command line, by their names.

    Attributes:
        diversity: those given that begin with `diversity_`, except the window's size: a preset,
            and fields of `Settings`.
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
        """Raise ValueError or OSError for mistakes that show before anything is read."""
        if not isfinite(self.guidance_scale):
            raise ValueError(f"guidance-scale must be a finite number, got {self.guidance_scale}")
        if self.overwrite and self.resume:
            raise ValueError("--overwrite begins anew and --resume goes on: give one of them")
        check_model(self.model)
        if self.window_out is not None and self.diversity.get("memory") == "call":
            raise ValueError(
                "--diversity-memory call remembers nothing that --window-out could save: leave one "
                "of them out"
            )
        if self.window_out is not None and not self.window_out.absolute().parent.is_dir():
            raise FileNotFoundError(f"there is no folder for --window-out {self.window_out}")
        if self.output.exists() and not self.output.is_dir():
            raise FileExistsError(f"--output {self.output} is a file: name a folder")


def open_run(options: RunOptions, group: ProcessGroup, stop: Stop, stack: ExitStack) -> Runner:
    """A run with these options, new or resumed; every process calls this.

    Args:
        stack: keeps the folder locked.

    Raises:
        ValueError, OSError: it cannot be made; the message says why.
    """

    def prepare() -> tuple[Plan, VendiGuidance, RunWindow, Checkpoint]:
        options.check()
        window, opening = _open_window(options, group)
        guidance = VendiGuidance(
            window=window,
            prompt_input=PIPELINES[options.pipeline].prompt_input,
            record=options.window_out is not None,
            **options.diversity,
        )
        return _plan(options, guidance), guidance, window, opening

    plan, guidance, window, opening = group.agree(prepare)
    folder = RunFolder(options.output, window.size)
    group.agree(lambda: _claim(options, folder, plan.manifest, stack) if group.is_first else None)

    def load() -> Runner:
        pipeline = PIPELINES[options.pipeline]
        pipe = load_model(pipeline, options.model, options.dtype, group.device)
        pipe.guidance = guidance
        done = folder.checkpoints.last() if options.resume else None
        if done is not None:
            folder.checkpoints.restore(window, group.device)
            return Runner(pipe, plan, folder, group, stop, done, None)
        window.enter_again(opening, group.device)
        return Runner(pipe, plan, folder, group, stop, opening.progress, opening)

    return group.agree(load)


def _plan(options: RunOptions, guidance: VendiGuidance) -> Plan:
    prompts = open_prompts(options.prompts)
    named = ("pipeline", "steps", "guidance_scale", "batch_size", "dtype")
    look = {name: getattr(options, name) for name in named}
    chosen = {"memory": guidance.keeps, "window": guidance.window.size}
    chosen |= asdict(guidance.settings)
    del chosen["beta"]  # it belongs to exemplars, and there are none
    look |= {f"diversity_{name}": value for name, value in chosen.items()}
    settings = look | {
        "images_per_prompt": options.images_per_prompt,
        "seed": options.seed,
        "device": torch.device(options.device).type,
        "no_metadata": options.no_metadata,
        # at scale 0, samples are remembered only for --window-out
        "window_out": options.window_out is not None or guidance.settings.scale > 0,
    }
    window = options.window_in
    model = Input(str(options.model), fingerprint(options.model))
    inputs = {
        "prompts": Input(options.prompts, prompts.sha256),
        "model": model,
        "window_in": None if window is None else Input(str(window), sha256_of(window)),
    }
    manifest = Manifest(settings, inputs, versions())
    origin = {"model_sha256": model.sha256, "versions": manifest.versions}
    return Plan(
        prompts,
        options.images_per_prompt,
        options.batch_size,
        options.seed,
        call={"num_inference_steps": options.steps, "guidance_scale": options.guidance_scale},
        about={"model": model.name, **look},
        origin=None if options.no_metadata else origin,
        manifest=manifest,
    )


def _claim(options: RunOptions, folder: RunFolder, manifest: Manifest, stack: ExitStack) -> None:
    """Lock the folder, and check that this run can begin or go on in it."""
    stack.enter_context(folder.locked())
    if not (options.resume and (folder.path / MANIFEST).is_file()):
        if not options.overwrite and not folder.is_empty():
            lacks = ": it has no run.json" if options.resume else ""
            raise FileExistsError(
                f"--output {folder.path} is not empty{lacks}: name another folder, go on with the "
                "run in it with --resume, or replace that with --overwrite"
            )
        return
    began = Manifest.load(folder.path)
    differences = manifest.differences(began)
    if differences:
        raise ValueError(
            f"the run in {folder.path} began with other settings: {'; '.join(differences)}; resume "
            "it with the settings that it began with, or name another folder"
        )
    for change in manifest.version_changes(began):
        click.echo(f"{change}: pictures may differ in rounding", err=True)
    folder.recover()


def _open_window(options: RunOptions, group: ProcessGroup) -> tuple[RunWindow, Checkpoint]:
    """An empty window, and the checkpoint whose samples enter it before any picture is made."""
    progress = Progress(0, 0, options.batch_size, side_by_side=group.count)
    if options.window_in is None:
        return RunWindow(options.diversity_window or DEFAULT_WINDOW), Checkpoint(progress)
    known = SlidingWindow.load(options.window_in, group.device)
    if options.diversity_window is not None:
        known.resize(options.diversity_window)
    window = RunWindow(known.size, dtype=known.dtype, device=known.device)
    if known.latent_shape is None:
        return window, Checkpoint(progress)
    latents = known.features.unflatten(1, known.latent_shape)
    return window, Checkpoint(replace(progress, entered=len(known)), latents, known.prompts)


def check_device(device: str) -> None:
    """Raise ValueError unless tensors can be computed there."""
    try:
        kind = torch.empty(0, device=device).device.type
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here: {reason}") from None
    if kind == "meta":
        raise ValueError(f"device {device!r} stores no data: use cpu or cuda")
