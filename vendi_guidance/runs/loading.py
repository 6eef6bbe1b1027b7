"""A run's model: found by the options, and loaded with its precision, its LoRA, and the network
that predicts in the rounds of a distilled model.

Half precision takes half the memory, and at most half the time on devices that support it natively.
Processors without bfloat16 emulate it, up to many times slower than float32.
"""

import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import accelerate
import diffusers
import torch
import transformers
from diffusers import LCMScheduler, ModelMixin, SchedulerMixin
from transformers import PreTrainedModel

from vendi_guidance.adapter.undistilled import Undistilled
from vendi_guidance.features.weights import all_weights, reason
from vendi_guidance.guidance.facts import FEW
from vendi_guidance.kernels.precision import float32_by_default
from vendi_guidance.runs.models import (
    CONFIG,
    INDEX,
    check_model,
    find_lora,
    find_model,
    find_undistilled,
    quiet,
    weights_of,
)
from vendi_guidance.runs.pipelines import LCM, guided_class, name_of, sampling_of, stock_class
from vendi_guidance.runs.plan import AUTO, DTYPES, MANIFEST, Manifest, RunOptions, Sampling
from vendi_guidance.storage.files import read_object


@dataclass(frozen=True)
class Model:
    """A model that has been found but not yet loaded."""

    options: RunOptions  # with the defaults for this model and device
    folder: Path
    pipeline: type[Any]  # the guided class that loads it
    sampling: Sampling
    lora: Path | None  # its file
    undistilled: Path | None  # folder of the network for the rounds; None for the model's own
    remarks: list[str]  # messages for the user: which defaults were chosen and why


def find(options: RunOptions) -> Model:
    """Locate the model, download it if necessary, and choose defaults that suit it. ValueError,
    OSError or ImportError if the model cannot be used."""
    options.check()
    lora = None if options.lora is None else find_lora(options.lora)
    folder = find_model(options.model, options.variant)
    check_model(folder)
    stock = stock_class(read_object(folder / INDEX)["_class_name"])
    sampling = sampling_of(stock, folder, options)
    dtype = options.dtype
    if dtype == AUTO and options.resume:
        dtype = _dtype_of_run(options.output)
    dtype, remark = choose(dtype, options.device, folder)
    named = options.undistilled
    if named == "none" or (named == RunOptions.undistilled and lora is None):
        named = None
    undistilled = find_undistilled(named, folder, options.variant)
    options = replace(options, dtype=dtype, undistilled=named)
    remarks = [*sampling.remarks, *filter(None, [remark])]
    return Model(options, folder, guided_class(stock), sampling, lora, undistilled, remarks)


def _dtype_of_run(folder: Path) -> str:
    """The precision of the run in a folder, or of the first run in its subfolders, or "auto"."""
    for file in (folder / MANIFEST, *sorted(folder.glob(f"*/{MANIFEST}"))):
        if file.is_file():
            dtype = Manifest.load(file.parent).settings.get("dtype")
            return dtype if dtype in DTYPES else AUTO
    return AUTO


def load(model: Model, device: str, is_guided: bool = True) -> Any:
    """Load a model onto the device, without progress bars, and the network that predicts in its
    rounds into its `guidance`. ValueError if one requires custom code, is not in safetensors, is
    damaged, lacks weights or does not fit the other."""
    pipe = _load_pipeline(model, device)
    options = model.options
    if model.lora is not None:
        with quiet():
            _add_lora(pipe, model.lora)
        if model.sampling.call.get("num_inference_steps", FEW) <= FEW:
            pipe.scheduler = _of_few_steps(pipe.scheduler, name_of(options.lora or ""))
    for is_wanted, name in ((options.vae_tiling, "tiling"), (options.vae_slicing, "slicing")):
        try:
            if is_wanted:
                getattr(pipe.vae, f"enable_{name}")()
        except (AttributeError, NotImplementedError):
            raise ValueError(
                f"--vae-{name}: this model's decoder does not support {name}: leave it out"
            ) from None
    pipe.set_progress_bar_config(disable=True)
    pipe.guidance.undistilled = _load_undistilled(model, device) if is_guided else None
    return pipe


def _load_pipeline(model: Model, device: str) -> Any:
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    offload = model.options.offload
    try:
        pipe = _from_pretrained(model.pipeline, model.folder, model.options)
        if offload is None:
            return pipe.to(device)
        getattr(pipe, f"enable_{offload}_cpu_offload")(device=device)
        return pipe
    except Exception as error:  # broken files raise errors of every kind
        why, name = reason(error), str(model.folder)
        if "safetensors" in why.replace(name, ""):
            why += (
                "; only safetensors are read, never pickle files. To convert a model that you "
                "trust: pipe = diffusers.DiffusionPipeline.from_pretrained("
                f"{name!r}, local_files_only=True); "
                f"pipe.save_pretrained({name!r} + '-safetensors', safe_serialization=True)"
            )
        raise ValueError(f"the model in {name} cannot be loaded: {why}") from error


@float32_by_default()  # diffusers leaves another default behind when a part cannot be built
def _from_pretrained(kind: Any, folder: Path, options: RunOptions) -> Any:
    with all_weights(PreTrainedModel, ModelMixin):
        return kind.from_pretrained(
            folder,
            dtype=getattr(torch, options.dtype),
            use_safetensors=True,
            local_files_only=True,
            variant=options.variant,
        )


def _add_lora(pipe: Any, file: Path) -> None:
    kind = getattr(pipe, "stock", type(pipe)).__name__
    if not hasattr(pipe, "load_lora_weights"):
        raise ValueError(f"{kind} does not support LoRAs: leave --lora out")
    why = "it has no weights for the parts of this pipeline"
    name = re.sub(r"\W", "_", f"{file.parent.name}-{file.stem}")
    try:
        pipe.load_lora_weights(
            file.parent,
            weight_name=file.name,
            adapter_name=name,
            use_safetensors=True,
            local_files_only=True,
        )
        if any(pipe.get_list_adapters().values()):
            return
    except Exception as error:  # files of other models raise errors of every kind
        why = reason(error)
    raise ValueError(f"the LoRA {file} does not fit this {kind}: {why}")


def _of_few_steps(scheduler: SchedulerMixin, lora: str) -> SchedulerMixin:
    """The scheduler for few steps with a LoRA of this name."""
    config = scheduler.config
    if re.search(LCM, lora) and hasattr(scheduler, "alphas_cumprod"):
        return LCMScheduler.from_config(config)
    # others expect to begin at the highest noise, which "leading" leaves out
    leading = config.get("timestep_spacing") == "leading"
    return scheduler.from_config(config, timestep_spacing="trailing") if leading else scheduler


def _load_undistilled(model: Model, device: str) -> Undistilled:
    """The network for `VendiGuidance(undistilled=...)`. With `--offload`, it stays on the CPU, and
    its layers move to the device one after another when it is called."""
    folder, options = model.undistilled, model.options
    if folder is None:
        return options.undistilled
    if not any(folder.glob(weights_of(options.variant))):
        options = replace(options, variant=None)
    try:
        kind = getattr(diffusers, read_object(folder / CONFIG)["_class_name"])
        network = _from_pretrained(kind, folder, options)
    except Exception as error:  # broken files raise errors of every kind
        name = options.undistilled
        raise ValueError(f"--undistilled {name} cannot be loaded: {reason(error)}") from error
    if options.offload is None:
        return network.to(device)
    return accelerate.cpu_offload(network, torch.device(device))


def choose(dtype: str, device: str, folder: Path) -> tuple[str, str | None]:
    """The precision for a model on a device, as the name of a torch dtype, and a remark or None.

    "auto" is, on a CPU, bfloat16 if the processor supports it natively and float32 otherwise; on a
    GPU, float16 for a U-Net and bfloat16 for a transformer, in which float16 may overflow.
    """
    kind = torch.device(device).type
    is_native = torch.cuda.is_bf16_supported(False) if kind == "cuda" else computes_bfloat16()
    if dtype != AUTO:
        is_slow = dtype == "bfloat16" and kind == "cpu" and not is_native
        slow = "this processor only emulates bfloat16, which is slow: --dtype auto uses float32"
        return dtype, slow if is_slow else None
    is_unet = not (folder / "transformer").is_dir()
    dtype = "float16" if kind != "cpu" and is_unet else "bfloat16"
    if dtype == "bfloat16" and kind in ("cpu", "cuda") and not is_native:
        dtype = "float32"
    return dtype, f"computing in {dtype}, which suits this model and device; --dtype changes it"


def computes_bfloat16() -> bool:
    """Whether the CPU supports bfloat16 natively. oneDNN also says so of AVX-512 processors that
    emulate it, so PyTorch is asked on x86."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return bool(torch.cpu._is_avx512_bf16_supported())
    has_onednn = torch.backends.mkldnn.is_available()
    return has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
