"""Preparation of a run from the options of `vendi-guidance generate`.

`find` locates the model and chooses defaults that suit it; `load` loads it; `open_run` does both,
locks the output folder, and returns a `Runner`, which generates the images.
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
from vendi_guidance.guidance.settings import SETTINGS, Published, Rounds, with_prefix
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
    """A model that has been found but not yet loaded."""

    options: RunOptions  # with the defaults for this model and device
    folder: Path
    pipeline: type[Any]  # the guided class that loads it
    sampling: Sampling
    lora: Path | None  # its file
    undistilled: Path | None  # folder of the network for the rounds; None for the model's own
    began: dict[str, Any]  # settings and inputs of the run that is resumed, or empty
    remarks: list[str]  # messages for the user: which defaults were chosen and why


def find(options: RunOptions) -> Model:
    """Locate the model, download it if necessary, and choose defaults that suit it.

    Raises:
        ValueError, OSError, ImportError: the model cannot be used; the message gives the reason.
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
    dtype, dtype_remark = choose(dtype, options.device, folder, options.variant)
    remarks = [*sampling.remarks, *filter(None, [dtype_remark])]
    named = options.undistilled
    # in runs of version 0.3, the model's own network predicts in the rounds
    is_older = bool(began) and "undistilled" not in began
    if named == "none" or (named == RunOptions.undistilled and (lora is None or is_older)):
        named = None
    undistilled = find_undistilled(named, folder, options.variant)
    steps, scale = sampling.steps, sampling.guidance_scale
    options = replace(options, steps=steps, guidance_scale=scale, dtype=dtype, undistilled=named)
    if undistilled is not None:
        size = undistilled_size(undistilled, options)
        remarks.append(f"the rounds' network, {named}: {size:.2g} GB beside the model")
    guided = guided_class(stock)
    return Model(options, folder, guided, sampling, lora, undistilled, began, remarks)


def load(model: Model, device: str) -> Any:
    """Load a model onto the device.

    Raises:
        ValueError: it cannot be loaded; the message gives the reason.
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
    """Begin or resume a run with these options; every process must call this.

    Args:
        stack: keeps the folder locked until it is closed.
        pipe: the model, if an earlier run has loaded it already (see `load`).
        tell: called with each message for the user, in the first process only.
        undistilled: the network that `options.undistilled` names, if it is loaded already.

    Raises:
        ValueError, OSError: the run cannot begin or resume; the message gives the reason.
    """
    if has_begun(options.output):
        options = replace(options, resume=True, overwrite=False)
        if group.is_first:
            tell(f"restarted: resuming the run in {options.output}")

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
        if not guidance.settings.is_off and undistilled is None:
            network = load_undistilled(model.undistilled, model.options, group.device)
            guidance.undistilled = network
        done = folder.checkpoints.last() if options.resume else None
        if done is not None:
            window.opening = opening
            folder.checkpoints.restore(window, group.device)
            window.keep(opening)  # samples of another image size, whose checkpoint may be gone
            return Runner(pipe, plan, folder, group, stop, done, None, sampler)
        window.enter_again(opening, group.device)
        return Runner(pipe, plan, folder, group, stop, opening.progress, opening, sampler)

    return group.agree(begin)


def inputs_of(model: Model) -> dict[str, Input]:
    """The model, LoRA and undistilled network of a run, as `run.json` records them, by the names of
    the options."""
    found = {"model": Input(model.options.model, _fingerprint(model, "model", model.folder))}
    if model.lora is not None:
        found["lora"] = Input(str(model.options.lora), sha256_of(model.lora))
    if (name := model.options.undistilled) is not None:
        network = model.undistilled
        sha256 = "" if network is None else _fingerprint(model, "undistilled", network)
        found["undistilled"] = Input(name, sha256)
    return found


def _fingerprint(model: Model, name: str, folder: Path) -> str:
    """Fingerprint of a folder with weights, for the option with this name."""
    began = model.began.get(name)
    earlier = began.sha256 if isinstance(began, Input) else None
    return fingerprint(folder, model.options.variant, earlier)


def _settings_of_run(folder: Path) -> dict[str, Any]:
    """Settings and inputs of the run in a folder, or of the first run in its subfolders, or {}."""
    files = (folder / MANIFEST, *sorted(folder.glob(f"*/{MANIFEST}")))
    first = next((file for file in files if file.is_file()), None)
    if first is None:
        return {}
    manifest = Manifest.load(first.parent)
    return manifest.inputs | manifest.settings


def _with_earlier_rounds(settings: Rounds | Published, began: dict[str, Any]) -> Rounds | Published:
    """The settings to resume a run that a version without `budget` began: its number of rounds."""
    if not isinstance(settings, Rounds) or settings.rounds or settings.budget != Rounds.budget:
        return settings
    if "diversity_budget" in began or not began.get("diversity_rounds"):
        return settings
    earlier = {name: began[f"diversity_{name}"] for name in ("rounds", "candidates")}
    return replace(settings, **earlier)


def check_prompts_are_seen(pipeline: type[Any], settings: Rounds | Published) -> None:
    """Raise ValueError if the objective compares prompts but the pipeline does not expose them."""
    is_seen = pipeline.prompt_input is not None or prompt_inputs(pipeline)
    if not settings.is_off and settings.is_conditional and not is_seen:
        raise ValueError(
            f"{pipeline.stock.__name__} gives guidance no prompt embeddings: use "
            "generate --diversity-objective vendi, which ignores prompts and compares all images"
        )


def _plan(model: Model, guidance: VendiGuidance, about_sampler: dict[str, Any]) -> Plan:
    """What the run generates, and what `run.json` and `metadata.jsonl` record about it."""
    options, model_inputs = model.options, inputs_of(model)
    prompts = open_prompts(options.prompts)
    about = {"pipeline": model.pipeline.stock.__name__, **about_sampler, **model.sampling.about}
    about |= {"batch_size": options.batch_size, "dtype": options.dtype}
    if options.vae_tiling:
        about["vae_tiling"] = True
    if options.variant is not None:
        about["variant"] = options.variant
    about |= {with_prefix(name): value for name, value in _about_guidance(guidance).items()}
    settings = about | {
        "images_per_prompt": options.images_per_prompt,
        "seed": options.seed,
        "device": torch.device(options.device).type,
        "no_metadata": options.no_metadata,
        # without guidance, samples are remembered only for --window-out
        "window_out": options.window_out is not None or not guidance.settings.is_off,
    }
    inputs: dict[str, Input | None] = {"prompts": Input(options.prompts, prompts.sha256)}
    inputs |= {**model_inputs, "window_in": None}
    if (window := options.window_in) is not None:
        inputs["window_in"] = Input(str(window), sha256_of(window))
    about = {name: one.name for name, one in model_inputs.items()} | about
    return Plan(options, prompts, model.sampling, about, Manifest(settings, inputs, versions()))


def _about_guidance(guidance: VendiGuidance) -> dict[str, Any]:
    """The guidance settings that have an effect, by their names without `diversity_`."""
    about = {"memory": guidance.keeps, "window": guidance.window.size}
    about |= asdict(guidance.settings)
    if about.get("proposal") == Rounds.proposal:
        about.pop("proposal", None)  # `Published` has none
    if about.get("rounds") is not None:
        about.pop("budget", None)  # a number of rounds overrides it
    exemplars = guidance.memory.exemplars
    if exemplars is None:
        del about["beta"]  # has an effect with exemplars only
    else:
        about["exemplars"] = len(exemplars)
    return about


def _claim(
    options: RunOptions, folder: RunFolder, manifest: Manifest, stack: ExitStack
) -> list[str]:
    """Lock the folder and check that this run can begin or resume in it; returns a clause for each
    software version that has changed since it began."""
    stack.enter_context(folder.locked())
    has_run = (folder.path / MANIFEST).is_file()
    if not has_run and not folder.is_empty():
        raise FileExistsError(
            f"--output {folder.path} is not empty and has no run.json, so it holds no run to "
            "resume or to replace: name another folder"
        )
    if not has_run:
        note_begun(folder.path)  # so that restarted processes resume what killed ones have left
        return []
    if options.overwrite:
        return []
    if not options.resume:
        raise FileExistsError(
            f"--output {folder.path} is not empty: name another folder, resume the run in it with "
            "--resume, or replace it with --overwrite"
        )
    began = Manifest.load(folder.path)  # again, now that the folder is locked
    for name in {*map(with_prefix, SETTINGS)} - manifest.settings.keys():
        began.settings.pop(name, None)  # older versions recorded the other algorithm's settings too
    differences = manifest.differences(began)
    if differences:
        raise ValueError(
            f"the run in {folder.path} began with other settings: {'; '.join(differences)}; resume "
            "it with its original settings, or name another folder"
        )
    folder.recover()
    return manifest.version_changes(began)


def _open_window(options: RunOptions, group: ProcessGroup) -> tuple[RunWindow, Checkpoint]:
    """An empty window, and the opening checkpoint, whose samples enter it before the first batch:
    those of `--window-in`."""
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
