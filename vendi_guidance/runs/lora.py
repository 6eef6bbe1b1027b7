"""Loading of LoRAs (low-rank adapters) from a file, a folder or the Hugging Face hub.

As for models, only safetensors are read.
"""

import re
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download

from vendi_guidance.checks import counted, optional_import
from vendi_guidance.features.weights import reason

WEIGHTS = "pytorch_lora_weights.safetensors"
"""Name of the file that diffusers' `save_lora_weights` writes."""


def find_lora(name: str) -> Path:
    """The file of a LoRA, downloaded to the cache of the Hugging Face hub if necessary.

    Args:
        name: a file, a folder, a repository on the hub such as "latent-consistency/lcm-lora-sdxl",
            or a file in a repository: "owner/repository/file".

    Raises:
        ImportError: peft is not installed.
        FileNotFoundError: there is no such safetensors file, the folder has several, or the hub
            cannot be reached.
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
        raise FileNotFoundError(f"--lora {name} is not a safetensors file: only those are read")
    if is_file:
        return path
    try:
        return Path(hf_hub_download("/".join(parts[:2]), file))
    except Exception as error:  # the hub, proxies and sockets raise errors of every kind
        raise FileNotFoundError(
            f"--lora {name} is neither a file nor a folder, and cannot be loaded from the Hugging "
            f"Face hub: {reason(error)}"
        ) from None


def _in_folder(folder: Path) -> Path:
    found = sorted(folder.glob("*.safetensors"))
    if folder / WEIGHTS in found:
        return folder / WEIGHTS
    if not found:
        raise FileNotFoundError(f"--lora {folder} has no safetensors file: only those are read")
    if len(found) > 1:
        raise FileNotFoundError(
            f"--lora {folder} has no {WEIGHTS} but "
            f"{counted(len(found), 'other safetensors file')}: name the file"
        )
    return found[0]


def add_lora(pipe: Any, file: Path) -> None:
    """Load a LoRA into a pipeline and enable it.

    Raises:
        ValueError: the pipeline does not support LoRAs, or the LoRA does not fit it.
    """
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
