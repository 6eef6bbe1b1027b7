"""Finding of untrusted models, LoRAs and networks, in a folder or on the Hugging Face hub.

Code that comes with a model is never run: weights are read from safetensors only, and all parts of
a model must be classes of diffusers or transformers.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import diffusers
from diffusers import DiffusionPipeline
from huggingface_hub import hf_hub_download, model_info
from huggingface_hub.errors import HFValidationError

from vendi_guidance.adapter.denoiser import NETWORKS
from vendi_guidance.adapter.undistilled import ADAPTERS, AUTO
from vendi_guidance.features.weights import model_folder, not_found
from vendi_guidance.storage.files import read_object
from vendi_guidance.storage.messages import counted, optional_import

INDEX = "model_index.json"
CONFIG = "config.json"
SCHEDULER = Path("scheduler", "scheduler_config.json")
LORA_WEIGHTS = "pytorch_lora_weights.safetensors"
"""Name of the file that diffusers' `save_lora_weights` writes."""

BLOCK = 2**16
BLOCKS = 64  # a fingerprint covers this many blocks of a large file, of `BLOCK` bytes each
WEIGHT_SUFFIXES = {".safetensors", ".bin", ".msgpack", ".onnx", ".onnx_data", ".pb"}
"""Suffixes of weight files, in safetensors and in other formats."""

TIMEOUT = 10  # seconds after which a hub that does not answer counts as unreachable
BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError)
"""Errors of pipeline calls whose parts were loaded but do not fit together."""


def find_model(name: str, variant: str | None = None) -> Path:
    """A model's folder, or that of a repository such as "stabilityai/sdxl-turbo" in the cache of
    the Hugging Face hub, downloaded if necessary, with the weights of a variant such as "fp16".

    FileNotFoundError if it cannot be downloaded; ValueError if the model requires custom code. A
    name that is no repository's is returned as a path, which `check_model` reports to be missing.
    """
    if os.path.exists(name) or name.count("/") != 1:
        return Path(name)
    offline: Exception | None = None
    try:
        model_info(name, timeout=TIMEOUT)
    except HFValidationError:
        return Path(name)
    except Exception as error:  # the hub, proxies and sockets raise errors of every kind
        offline = error
    try:
        with quiet():
            index = hf_hub_download(name, INDEX, local_files_only=offline is not None)
            check_model(Path(index).parent)
            folder = DiffusionPipeline.download(
                name,
                use_safetensors=True,
                variant=variant,
                trust_remote_code=False,
                local_files_only=offline is not None,
            )
    except OSError as error:
        raise not_found(name, offline or error, name) from error
    return Path(folder)


def find_lora(name: str) -> Path:
    """The file of a LoRA: that file, the one in a folder, or one in the cache of the hub, where the
    name is a repository such as "latent-consistency/lcm-lora-sdxl" or "owner/repository/file".

    ImportError without peft; FileNotFoundError if there is no such safetensors file, the folder has
    several, or the hub cannot be reached.
    """
    optional_import("peft", "peft", f"--lora {name}", extra="lora")
    path, parts = Path(name), name.split("/", 2)
    if os.path.isdir(name):
        usual = path / LORA_WEIGHTS
        found = [usual] if usual.is_file() else [*path.glob("*.safetensors")]
        if len(found) == 1:
            return found[0]
        raise FileNotFoundError(
            f"--lora {name} has {counted(len(found), 'safetensors file')} and no {LORA_WEIGHTS}: "
            "name the file; only safetensors are read"
        )
    is_file = os.path.isfile(name)
    file = name if is_file else "".join(parts[2:]) or LORA_WEIGHTS
    if not file.endswith(".safetensors"):
        raise FileNotFoundError(f"--lora {name} is not a safetensors file: only those are read")
    repository = "/".join(parts[:2])
    try:
        return path if is_file else Path(hf_hub_download(repository, file))
    except Exception as error:  # the hub, proxies and sockets raise errors of every kind
        raise not_found(f"--lora {name}", error, repository, file) from None


def find_undistilled(name: str | None, model: Path, variant: str | None = None) -> Path | None:
    """The folder of the network that `--undistilled` names: in a folder with a model or a network,
    or of a model on the hub, downloaded if necessary; None for the model's own.

    FileNotFoundError if there is none; ValueError if its class or prediction type differs from that
    of the model's network.
    """
    if name in (None, AUTO, ADAPTERS):
        return None
    parts = check_model(model)
    part = next((part for part in NETWORKS if part in parts), NETWORKS[0])
    folders = [it for it in (Path(name, part), Path(name)) if os.path.isfile(it / CONFIG)]
    folder = folders[0] if folders else model_folder(name, f"{part}/{weights_of(variant)}") / part
    for theirs, ours, key, says in (
        (folder / CONFIG, model / part / CONFIG, "_class_name", "is a"),
        (folder.parent / SCHEDULER, model / SCHEDULER, "prediction_type", "predicts"),
    ):
        found, own = (read_object(file).get(key) for file in (theirs, ours))
        if found and own and found != own:
            raise ValueError(
                f"--undistilled {name} {says} {found}, but the model {own}: give the model that "
                "this one was distilled from"
            )
    return folder


def check_model(folder: Path) -> dict[str, str]:
    """The classes of a model's parts, by name. FileNotFoundError if it has no index; ValueError if
    that is invalid, or a part is not a class of diffusers or transformers and so requires code of
    its own."""
    path = folder / INDEX
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"there is no model in {folder}: it has no {INDEX}; give a folder that diffusers' "
            "save_pretrained wrote, or the name of a model on the hub"
        )
    if not (index := read_object(path)):
        raise ValueError(f"{path} is not the index of a model: it is damaged, or names no parts")
    refused, parts = [], {}
    if not isinstance(index.get("_class_name"), str):
        refused.append(f"{index.get('_class_name')} as its pipeline")
    for name, value in index.items():
        is_part = isinstance(value, list) and len(value) == 2 and not name.startswith("_")
        if not is_part or value == [None, None]:  # an optional part that this model does not have
            continue
        library, parts[name] = map(str, value)
        module = getattr(diffusers.pipelines, library, None)
        is_known = library in ("diffusers", "transformers") or (
            isinstance(module, ModuleType) and module.__name__.startswith("diffusers.pipelines.")
        )
        # an Auto class may run code from the model's folder
        if not is_known or (library == "transformers" and parts[name].startswith("Auto")):
            refused.append(f"{library}.{parts[name]} as its {name}")
    if refused:
        raise ValueError(
            f"the model in {folder} asks for {refused[0]} in {INDEX}: only classes of diffusers "
            "and transformers are loaded, never code that comes with a model"
        )
    return parts


def fingerprint(folder: Path, variant: str | None = None) -> str:
    """SHA-256 of the files of a model, or of one of its parts, that a run loads. Of large files it
    covers only blocks spread over them, so that it is fast."""
    names = sorted(check_model(folder)) if (folder / INDEX).is_file() else [""]
    files = [file for name in names for file in _loaded(folder / name, variant)]
    digest = hashlib.sha256()
    for path in filter(Path.is_file, (folder / INDEX, *files)):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()!a} {size}\n".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(BLOCK, -(-size // BLOCKS))):
                file.seek(start)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()


def _loaded(part: Path, variant: str | None) -> list[Path]:
    """The files of a part that are loaded: weights in safetensors, of the variant if there are any
    and else without one, and all files that are not weights."""
    weights = [*part.glob(weights_of(variant))] or [*part.glob(weights_of(None))]
    others = [file for file in part.rglob("*") if not WEIGHT_SUFFIXES & {*file.suffixes}]
    return sorted(weights + others)


def weights_of(variant: str | None) -> str:
    """Glob pattern of a part's weight files, of a variant such as "fp16" or without one."""
    end = "[.-][s0]" if variant is None else f".{variant}"
    return f"*model{end}*tensors"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence diffusers' log messages, including its warnings about downloads."""
    library = logging.getLogger("diffusers")
    level = library.level
    library.setLevel(logging.ERROR)
    try:
        yield
    finally:
        library.setLevel(level)
