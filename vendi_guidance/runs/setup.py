"""From the options of `vendi-guidance generate` to a run that can be made.

`find` resolves the model and what suits it; `load` loads it; `open_run` does both, claims the
folder, and returns a `Runner`, which generates the images.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.adapter.prompts import prompt_inputs
from vendi_guidance.adapter.undistilled import Undistilled
from vendi_guidance.guidance.settings import SETTINGS, Published, Rounds, Settings
from vendi_guidance.guidance.window import WINDOW, SlidingWindow
from vendi_guidance.runs.checkpoints import Checkpoint, Progress, RunWindow
from vendi_guidance.runs.distributed import ProcessGroup, has_begun, note_begun
from vendi_guidance.runs.folder import RunFolder
from vendi_guidance.runs.lora import find_lora
from vendi_guidance.runs.manifest import MANIFEST, Input, Manifest, versions
from vendi_guidance.runs.models import check_model, find_model, fingerprint, load_model
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.pipelines import guided_class, stock_class
from vendi_guidance.runs.plan import Plan
from vendi_guidance.runs.precision import AUTO, DTYPES, choose
from vendi_guidance.runs.runner import PLAIN, Runner, Sampler
from vendi_guidance.runs.sampling import Sampling, sampling_of
from vendi_guidance.runs.signals import Stop
from vendi_guidance.runs.undistilled import find_undistilled, load_undistilled, undistilled_size
from vendi_guidance.storage.files import sha256_of
from vendi_guidance.storage.prompt_files import open_prompts


@dataclass(frozen=True)
class Model:
    """A model that has been found, not yet loaded.

    Attributes:
        options: those given, with what the model and the device decide.
        pipeline: the guided class that serves it.
        lora: its file, if there is one.
        undistilled: folder of the network that predicts in the rounds, if it is not its own.
        began: the settings and inputs of the run that is resumed.
        remarks: what was not given and how it was chosen, for the user.
    """

    options: RunOptions
    folder: Path
    pipeline: type[Any]
    sampling: Sampling
    lora: Path | None
    undistilled: Path | None
    began: dict[str, Any]
    remarks: list[str]


def find(options: RunOptions) -> Model:
    """The model that the options name.

    Raises:
        ValueError, OSError, ImportError: it cannot be used; the message says why.
    """
    options.check()
    lora = None if options.lora is None else find_lora(options.lora)
    folder = find_model(options.model, options.variant)
    stock = stock_class(check_model(folder))
    sampling = sampling_of(stock, folder, options)
    began = _settings_of_run(options.output) if options.resume else {}
    dtype = options.dtype
    if dtype == AUTO and began.get("dtype") in DTYPES:
        dtype = began["dtype"]
    dtype, of_precision = choose(dtype, options.device, folder, options.variant)
    named = options.undistilled
    # runs of version 0.3 have their own networks in the rounds
    is_older = bool(began) and "undistilled" not in began
    if named == "none" or (named == RunOptions.undistilled and (lora is None or is_older)):
        named = None
    undistilled = find_undistilled(named, folder, options.variant)
    steps, scale = sampling.steps, sampling.guidance_scale
    options = replace(options, steps=steps, guidance_scale=scale, dtype=dtype, undistilled=named)
    remarks = [*sampling.remarks, *([] if of_precision is None else [of_precision])]
    if undistilled is not None:
        size = f"{undistilled_size(undistilled, options):.2g} GB beside the model"
        remarks.append(f"the rounds' network, {options.undistilled}: {size}")
    guided = guided_class(stock)
    return Model(options, folder, guided, sampling, lora, undistilled, began, remarks)


def load(model: Model, device: str) -> Any:
    """The model on its device.

    Raises:
        ValueError: it cannot be loaded; the message says why.
    """
    return load_model(model.pipeline, model.folder, model.options, device, model.lora)


def open_run(
    options: RunOptions,
    group: ProcessGroup,
    stop: Stop,
    stack: ExitStack,
    pipe: Any = None,
    sampler: Sampler = PLAIN,
    tell: Callable[[str], object] = lambda remark: None,
    undistilled: Undistilled = None,
) -> Runner:
    """A run with these options, new or resumed; every process calls this.

    Args:
        stack: keeps the folder locked.
        pipe: the model, if an earlier run with it has loaded it (see `load`).
        tell: called in the first process with what the user should know, a sentence each.
        undistilled: what `options.undistilled` names, if it is loaded.

    Raises:
        ValueError, OSError: it cannot be made; the message says why.
    """
    if has_begun(options.output):
        options = replace(options, resume=True, overwrite=False)
        if group.is_first:
            tell(f"restarted: going on with the run in {options.output}")

    def prepare() -> tuple[Plan, VendiGuidance, RunWindow, Checkpoint]:
        window, opening = _open_window(options, group)
        guidance = VendiGuidance(
            window=window,
            prompt_input=model.pipeline.prompt_input,
            record=options.window_out is not None,
            **options.diversity,
        )
        guidance.settings = _with_earlier_rounds(guidance.settings, model.began)
        check_prompts_are_seen(model.pipeline, guidance.settings)
        return _plan(model, guidance, sampler.about), guidance, window, opening

    model = group.agree(lambda: find(options))
    dtype, _ = group.share(model.options.dtype)[0]
    model = replace(model, options=replace(model.options, dtype=dtype))
    plan, guidance, window, opening = group.agree(prepare)
    if group.is_first and pipe is None:
        for remark in model.remarks:
            tell(remark)
    folder = RunFolder(options.output, window.size)
    claimed = folder, plan.manifest, stack
    for change in group.agree(lambda: _claim(options, *claimed) if group.is_first else []):
        tell(f"{change}: images may differ in rounding")

    def begin() -> Runner:
        nonlocal pipe
        pipe = load(model, group.device) if pipe is None else pipe
        pipe.guidance, guidance.undistilled = guidance, undistilled
        if guidance.settings.scale and undistilled is None:
            network = load_undistilled(model.undistilled, model.options, group.device)
            guidance.undistilled = network
        done = folder.checkpoints.last() if options.resume else None
        if done is not None:
            window.opening = opening
            folder.checkpoints.restore(window, group.device)
            window.keep(opening)  # of another image size: its checkpoint may be gone
            return Runner(pipe, plan, folder, group, stop, done, None, sampler)
        window.enter_again(opening, group.device)
        return Runner(pipe, plan, folder, group, stop, opening.progress, opening, sampler)

    return group.agree(begin)


def inputs_of(model: Model) -> dict[str, Input]:
    """What a run reads of its model, by the names of the options."""
    found = {"model": Input(model.options.model, fingerprint(model.folder))}
    if model.lora is not None:
        found["lora"] = Input(str(model.options.lora), sha256_of(model.lora))
    return found


def _settings_of_run(folder: Path) -> dict[str, Any]:
    """The settings and inputs that the run in a folder, or the first of several in its subfolders,
    began with; empty if there is none."""
    files = (folder / MANIFEST, *sorted(folder.glob(f"*/{MANIFEST}")))
    first = next((file for file in files if file.is_file()), None)
    if first is None:
        return {}
    manifest = Manifest.load(first.parent)
    return manifest.inputs | manifest.settings


def _with_earlier_rounds(settings: Rounds | Published, began: dict[str, Any]) -> Rounds | Published:
    """The settings to resume a run of a version that had a number of rounds but no budget."""
    if not isinstance(settings, Rounds) or settings.rounds or settings.budget != Rounds.budget:
        return settings
    if "diversity_budget" in began or not began.get("diversity_rounds"):
        return settings
    earlier = {name: began[f"diversity_{name}"] for name in ("rounds", "candidates")}
    return settings.changed(**earlier)


def check_prompts_are_seen(pipeline: type[Any], settings: Settings) -> None:
    """Raise ValueError if guidance compares prompts that this pipeline does not show it."""
    is_seen = pipeline.prompt_input is not None or prompt_inputs(pipeline)
    if settings.scale and settings.is_conditional and not is_seen:
        raise ValueError(
            f"{pipeline.stock.__name__} gives guidance no prompt embeddings: it is guided by "
            "generate --diversity-objective vendi alone, which compares the images of all prompts"
        )


def _plan(model: Model, guidance: VendiGuidance, of_sampler: dict[str, Any]) -> Plan:
    """What the run generates, and what `run.json` and `metadata.jsonl` say of it."""
    options, of_model = model.options, inputs_of(model)
    prompts = open_prompts(options.prompts)
    look = {"pipeline": model.pipeline.stock.__name__, **of_sampler, **model.sampling.about}
    look |= {"batch_size": options.batch_size, "dtype": options.dtype}
    if options.vae_tiling:
        look["vae_tiling"] = True
    if options.variant is not None:
        look["variant"] = options.variant
    look |= {f"diversity_{name}": value for name, value in _about_guidance(guidance).items()}
    settings = look | {
        "images_per_prompt": options.images_per_prompt,
        "seed": options.seed,
        "device": torch.device(options.device).type,
        "no_metadata": options.no_metadata,
        # at scale 0, samples are remembered only for --window-out
        "window_out": options.window_out is not None or guidance.settings.scale > 0,
    }
    inputs: dict[str, Input | None] = {"prompts": Input(options.prompts, prompts.sha256)}
    inputs |= {**of_model, "window_in": None}
    if (window := options.window_in) is not None:
        inputs["window_in"] = Input(str(window), sha256_of(window))
    about = {name: one.name for name, one in of_model.items()} | look
    if options.undistilled is not None:
        network = model.undistilled
        sha256 = "" if network is None else fingerprint(network)
        inputs["undistilled"] = Input(options.undistilled, sha256)
        about["undistilled"] = options.undistilled
    return Plan(options, prompts, model.sampling, about, Manifest(settings, inputs, versions()))


def _about_guidance(guidance: VendiGuidance) -> dict[str, Any]:
    """The settings of guidance that have an effect, by their names without `diversity_`."""
    about = {"memory": guidance.keeps, "window": guidance.window.size}
    about |= {"rounds": 0} | asdict(guidance.settings)  # 0 says that they are `Published`
    if about.get("proposal") == Rounds.proposal:
        about.pop("proposal", None)  # `Published` has none
    if about["rounds"] is not None:
        about.pop("budget", None)  # which then has no effect
    exemplars = guidance.memory.exemplars
    if exemplars is None:
        del about["beta"]  # it belongs to exemplars
    else:
        about["exemplars"] = len(exemplars)
    return about


def _claim(
    options: RunOptions, folder: RunFolder, manifest: Manifest, stack: ExitStack
) -> list[str]:
    """Lock the folder, and check that this run can begin or resume in it; returns which versions
    have changed since it began, a sentence each."""
    stack.enter_context(folder.locked())
    has_run = (folder.path / MANIFEST).is_file()
    if not has_run and not folder.is_empty():
        raise FileExistsError(
            f"--output {folder.path} is not empty and has no run.json, so it holds no run to go on "
            "with or to replace: name another folder"
        )
    if not has_run:
        note_begun(folder.path)  # now, because what a killed process leaves is no run of others
        return []
    if options.overwrite:
        return []
    if not options.resume:
        raise FileExistsError(
            f"--output {folder.path} is not empty: name another folder, go on with the run in "
            "it with --resume, or replace that with --overwrite"
        )
    began = Manifest.load(folder.path)  # as it is under the lock
    for name in {f"diversity_{name}" for name in SETTINGS} - manifest.settings.keys():
        began.settings.pop(name, None)  # of the other algorithm, which older versions wrote too
    differences = manifest.differences(began)
    if differences:
        raise ValueError(
            f"the run in {folder.path} began with other settings: {'; '.join(differences)}; resume "
            "it with the settings that it began with, or name another folder"
        )
    folder.recover()
    return manifest.version_changes(began)


def _open_window(options: RunOptions, group: ProcessGroup) -> tuple[RunWindow, Checkpoint]:
    """An empty window, and the checkpoint whose samples enter it before any image is made."""
    progress = Progress(0, 0, options.batch_size, side_by_side=group.count)
    if options.window_in is None:
        return RunWindow(options.diversity_window or WINDOW), Checkpoint(progress)
    known = SlidingWindow.load(options.window_in, group.device)
    if options.diversity_window is not None:
        known.resize(options.diversity_window)
    window = RunWindow(known.size, dtype=known.dtype, device=known.device)
    if known.latent_shape is None:
        return window, Checkpoint(progress)
    for shape in known.shapes[1:]:
        window.adopt(known.of_shape(shape))
    latents = known.features.unflatten(1, known.latent_shape)
    return window, Checkpoint(replace(progress, entered=len(known)), latents, known.prompts)
