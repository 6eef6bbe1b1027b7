"""LoRAs: weights of low rank beside a model's own, from a file, a folder or the hub.

As with models, nothing but safetensors is read.
"""

from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download

from vendi_guidance.checks import counted, optional_import
from vendi_guidance.features.weights import reason

WEIGHTS = "pytorch_lora_weights.safetensors"
"""The file that diffusers' save_lora_weights writes."""


def find_lora(name: str) -> Path:
    """The file of a LoRA, downloaded to the Hugging Face hub's cache if need be.

    Args:
        name: a file, a folder, or else a repository on the hub, such as
            "latent-consistency/lcm-lora-sdxl", or a file in one: "owner/repository/file".

    Raises:
        ImportError: peft is not installed.
        FileNotFoundError: there is no such file of safetensors, the folder has several, or the
            hub cannot be reached.
    """
    optional_import("peft", "peft", f"--lora {name}", extra="lora")
    path = Path(name)
    try:
        if path.is_dir():
            return _in_folder(path)
        is_file = path.is_file()
    except (OSError, ValueError) as error:  # too long, or with a null character
        raise FileNotFoundError(f"there is no LoRA {name!r}: {reason(error)}") from None
    if not is_file and (name.startswith(("/", ".", "~")) or "/" not in name):
        raise FileNotFoundError(f"--lora {name} is neither a file nor a folder")
    parts = name.split("/", 2)
    file = name if is_file else (*parts, WEIGHTS)[2]
    if not file.endswith(".safetensors"):
        raise FileNotFoundError(f"--lora {name} is no file of safetensors, and no other is read")
    if is_file:
        return path
    try:
        return Path(hf_hub_download("/".join(parts[:2]), file))
    except Exception as error:  # the hub, proxies and sockets raise errors of every kind
        raise FileNotFoundError(
            f"--lora {name} is no file or folder, and cannot be loaded from the Hugging Face hub: "
            f"{reason(error)}"
        ) from None


def _in_folder(folder: Path) -> Path:
    found = sorted(folder.glob("*.safetensors"))
    if folder / WEIGHTS in found:
        return folder / WEIGHTS
    if not found:
        raise FileNotFoundError(f"--lora {folder} has no safetensors, and nothing else is read")
    if len(found) > 1:
        raise FileNotFoundError(
            f"--lora {folder} has no {WEIGHTS} but {counted(len(found), 'other file')} of "
            "safetensors: name the file"
        )
    return found[0]


def add_lora(pipe: Any, file: Path) -> None:
    """Load a LoRA into the parts of a pipeline, switched on.

    Raises:
        ValueError: the pipeline takes none, or not this one; the message says why.
    """
    kind = getattr(pipe, "stock", type(pipe)).__name__
    if not hasattr(pipe, "load_lora_weights"):
        raise ValueError(f"{kind} takes no LoRA: leave --lora out")
    why = "it has no weights for its parts"
    name = "".join(it if it.isalnum() else "_" for it in f"{file.parent.name}-{file.stem}")
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
