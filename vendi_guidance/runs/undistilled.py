"""The network that predicts in the rounds of a distilled model: its own with LoRAs disabled, or
that of the model it was distilled from."""

from pathlib import Path
from typing import Any

import accelerate
import diffusers
import torch
from diffusers import ModelMixin

from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.undistilled import ADAPTERS, AUTO, Undistilled
from vendi_guidance.features.weights import all_weights, model_folder, reason
from vendi_guidance.runs.models import parts_of
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.precision import counts, weights_of
from vendi_guidance.runs.sampling import read_config

CONFIG = "config.json"


def find_undistilled(name: str | None, model: Path, variant: str | None = None) -> Path | None:
    """The folder of the network that `--undistilled` names, or None for the model's own.

    Args:
        name: "auto", "adapters", a folder with a model or a network, or a model on the hub, whose
            network is downloaded.
        model: folder of the model that generates the images.
        variant: variant of the files, such as "fp16", used if there are any.

    Raises:
        FileNotFoundError: there is no such network.
        ValueError: its class or prediction type differs from that of the model's network, or the
            model does not have exactly one network.
    """
    if name in (None, AUTO, ADAPTERS):
        return None
    parts = {part: kind for part, (_, kind) in parts_of(model).items() if part in NETWORKS and kind}
    if len(parts) != 1:
        raise ValueError(
            f"--undistilled {name} is one network, but the model has {len(parts)}: leave it out"
        )
    [(part, kind)] = parts.items()
    folder = Path(name)
    folder = folder / part if (folder / part).is_dir() else folder
    remedy = "give the model that this one was distilled from"
    if folder.is_dir() and folder.name != part and not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"--undistilled {name} has no {part}: {remedy}")
    if not (folder / CONFIG).is_file():
        folder = model_folder(name, f"{part}/{weights_of(variant)}") / part
    found = _class_in(folder).__name__
    if found != kind:
        raise ValueError(f"--undistilled {name} is a {found}, but the model has a {kind}: {remedy}")
    theirs, ours = _prediction_type(folder.parent), _prediction_type(model)
    if theirs and ours and theirs != ours:
        raise ValueError(f"--undistilled {name} predicts {theirs}, but the model {ours}: {remedy}")
    return folder


def undistilled_size(folder: Path, options: RunOptions) -> float:
    """Memory that the network in a folder needs, in GB."""
    count = counts(folder, _variant_in(folder, options)).total()
    return count * getattr(torch, options.dtype).itemsize / 1e9


def load_undistilled(folder: Path | None, options: RunOptions, device: str) -> Undistilled:
    """Load the network for `VendiGuidance(undistilled=...)`. With `options.offload`, it stays on
    the CPU, and its layers move to the device one after another when it is called.

    Args:
        folder: what `find_undistilled` returns.

    Raises:
        ValueError: it cannot be loaded.
    """
    if folder is None:
        return options.undistilled
    try:
        with all_weights(ModelMixin):
            network = _class_in(folder).from_pretrained(
                folder,
                dtype=getattr(torch, options.dtype),
                use_safetensors=True,
                local_files_only=True,
                variant=_variant_in(folder, options),
            )
    except Exception as error:  # broken files raise errors of every kind
        name = options.undistilled
        raise ValueError(f"--undistilled {name} cannot be loaded: {reason(error)}") from error
    if options.offload is None:
        return network.to(device)
    return accelerate.cpu_offload(network, torch.device(device))


def _variant_in(folder: Path, options: RunOptions) -> str | None:
    """The variant that the options name, or None if a folder has no files of it."""
    return options.variant if any(folder.glob(weights_of(options.variant))) else None


def _prediction_type(folder: Path) -> str | None:
    """The prediction type in the configuration of a model's scheduler, if any."""
    return read_config(folder / "scheduler" / "scheduler_config.json").get("prediction_type")


def _class_in(folder: Path) -> type[Any]:
    """The diffusers class of the network in a folder."""
    name = read_config(folder / CONFIG).get("_class_name")
    if name is None:
        raise ValueError(f"there is no network in {folder}: no {CONFIG} there names its class")
    kind = getattr(diffusers, str(name), None)
    if not (isinstance(kind, type) and issubclass(kind, ModelMixin)):
        raise ValueError(f"the network in {folder} asks for a {name}, which diffusers lacks")
    return kind
