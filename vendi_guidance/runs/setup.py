"""Preparation of a run from the options of `vendi-guidance generate`."""

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.prompts import prompt_inputs
from vendi_guidance.guidance.settings import Published, Rounds, with_prefix
from vendi_guidance.guidance.window import WINDOW, SlidingWindow
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.folder import Progress, RunFolder
from vendi_guidance.runs.loading import Model, find, load
from vendi_guidance.runs.models import fingerprint
from vendi_guidance.runs.plan import MANIFEST, Manifest, Plan, RunOptions, read, versions
from vendi_guidance.runs.runner import Runner
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.files import MEMORY, memory_name, sha256_of
from vendi_guidance.storage.prompt_files import open_prompts

AS_GIVEN = ("images_per_prompt", "batch_size", "seed", "dtype", "variant", "vae_tiling")
"""Options that `run.json` records as they are."""


def open_run(
    options: RunOptions,
    group: ProcessGroup,
    stop: Stop,
    stack: ExitStack,
    loaded: Any = None,
    tell: Callable[[str], object] = lambda remark: None,
) -> Runner:
    """Find and load the model, lock the folder, and begin or resume the run; every process must
    call this.

    `stack` keeps the folder locked until it is closed. `loaded` is what `load` returned, if it has
    been called; the run uses its weights. `tell` is called with each message for the user, in the
    first process only. ValueError or OSError if the run cannot begin or resume.
    """

    def prepare() -> tuple[Plan, VendiGuidance, SlidingWindow, RunFolder]:
        memory = _memory_file(options)
        size = options.diversity_window
        if memory is None:
            window = SlidingWindow(size or WINDOW)
        else:
            window = SlidingWindow.load(memory, group.device)
            window.resize(size or window.size)
        folder = RunFolder(options.output, window.size, memory)
        guidance = VendiGuidance(
            window=window,
            prompt_input=model.pipeline.prompt_input,
            record=options.window_out is not None,
            **options.diversity,
        )
        check_prompts_are_seen(model.pipeline, guidance.settings)
        plan = _plan(model, guidance, memory)
        if group.is_first:
            changes = _claim(options, folder, plan.manifest, stack)
            for remark in [*([] if loaded else model.remarks), *changes]:
                tell(remark)
        return plan, guidance, window, folder

    model = group.agree(lambda: find(options))
    dtype, _ = group.share(model.options.dtype)[0]
    model = replace(model, options=replace(model.options, dtype=dtype))
    plan, guidance, window, folder = group.agree(prepare)

    def begin() -> Runner:
        is_guided = not guidance.settings.is_off
        pipe = copy(loaded) if loaded else load(model, group.device, is_guided)
        guidance.undistilled = pipe.guidance.undistilled
        pipe.guidance = guidance
        opening = Progress(0, 0, options.batch_size, side_by_side=group.count)
        done = folder.checkpoints.restore(window, group.device) if options.resume else None
        return Runner(pipe, plan, folder, group, stop, done or opening)

    return group.agree(begin)


def _memory_file(options: RunOptions) -> Path | None:
    """The file of `--window-in`; if it is gone, the copy that the run in the folder began with."""
    given, folder = options.window_in, options.output
    if given is None or given.exists():
        return given
    copies = [folder / given]  # as metadata.jsonl names it
    with suppress(FileNotFoundError, ValueError):
        began = Manifest.load(folder).settings.get("window_in")
        if began and began["name"] == str(given):
            copies.append(folder / memory_name(began["sha256"]))
    for found in filter(Path.is_file, copies):
        return found
    raise FileNotFoundError(f"there is no --window-in {given}, nor its copy in {folder / MEMORY}")


def check_prompts_are_seen(pipeline: type[Any], settings: Rounds | Published) -> None:
    """Raise ValueError if the objective compares prompts but the pipeline does not expose them."""
    is_seen = pipeline.prompt_input is not None or prompt_inputs(pipeline)
    if not settings.is_off and settings.is_conditional and not is_seen:
        raise ValueError(
            f"{pipeline.stock.__name__} gives guidance no prompt embeddings: use "
            "generate --diversity-objective vendi, which ignores prompts and compares all images"
        )


def _plan(model: Model, guidance: VendiGuidance, memory: Path | None) -> Plan:
    """What the run generates, and what `run.json` and `metadata.jsonl` record about it."""
    options, variant, lora = model.options, model.options.variant, model.lora
    prompts, network = open_prompts(options.prompts), model.undistilled
    about = {"memory": guidance.keeps, "window": guidance.window.size, **asdict(guidance.settings)}
    del about["beta"]  # has an effect with exemplars only, which runs do not have
    settings = {
        "model": read(options.model, fingerprint(model.folder, variant)),
        "lora": lora and read(options.lora, sha256_of(lora)),
        "undistilled": options.undistilled
        if network is None
        else read(options.undistilled, fingerprint(network, variant)),
        "window_in": memory and read(options.window_in, sha256_of(memory)),
        "prompts": read(options.prompts, prompts.sha256),
        "pipeline": model.pipeline.stock.__name__,
        **model.sampling.about,
        **{name: getattr(options, name) for name in AS_GIVEN},
        "no_metadata": options.no_metadata,
        "device": torch.device(options.device).type,
        # without guidance, samples are remembered only for --window-out
        "window_out": options.window_out is not None or not guidance.settings.is_off,
        **{with_prefix(name): value for name, value in about.items()},
    }
    return Plan(options, prompts, model.sampling, Manifest(settings, versions()))


def _claim(
    options: RunOptions, folder: RunFolder, manifest: Manifest, stack: ExitStack
) -> list[str]:
    """Lock the folder and check that this run can begin or resume in it; returns a remark on each
    software version that has changed since it began."""
    if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0" and not options.resume:
        raise ValueError(
            "--max-restarts restarts a run that has begun, so that it needs --resume, which also "
            "starts one in a new folder"
        )
    stack.enter_context(folder.locked())
    has_run = (folder.path / MANIFEST).is_file()
    if not has_run and not folder.is_empty():
        raise FileExistsError(
            f"--output {folder.path} is not empty and has no run.json, so it holds no run to "
            "resume or to replace: name another folder"
        )
    if not has_run or options.overwrite:
        return []
    if not options.resume:
        raise FileExistsError(
            f"--output {folder.path} is not empty: name another folder, resume the run in it with "
            "--resume, or replace it with --overwrite"
        )
    began = Manifest.load(folder.path)  # again, now that the folder is locked
    if differences := manifest.differences(began):
        raise ValueError(
            f"the run in {folder.path} began with other settings: {'; '.join(differences)}; resume "
            "it with its original settings, or name another folder"
        )
    folder.recover()
    return manifest.version_changes(began)
