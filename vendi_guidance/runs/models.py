"""Loading models that may come from strangers, from a folder or the Hugging Face hub.

No code that comes with a model is run: weights are read from safetensors only, and the model's
parts are classes of diffusers and transformers.
"""

import hashlib
import json
import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import diffusers
import torch
import transformers
from diffusers import DiffusionPipeline, ModelMixin
from huggingface_hub import hf_hub_download, model_info
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from transformers import PreTrainedModel

from vendi_guidance.features.weights import all_weights, reason
from vendi_guidance.runs.lora import add_lora
from vendi_guidance.runs.options import RunOptions

INDEX = "model_index.json"

BLOCK = 2**16
BLOCKS = 64
"""The number of blocks of a large file that its fingerprint covers, of `BLOCK` bytes each."""


TIMEOUT = 10
"""Seconds until a hub that does not answer counts as one that cannot be reached."""

BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError)
"""What calls of a model raise that was loaded, but whose parts do not fit one another."""


def find_model(name: str, variant: str | None = None) -> Path:
    """The folder of a model, downloaded to the Hugging Face hub's cache if need be.

    Args:
        name: a folder, or else a repository on the hub, such as
            "stabilityai/stable-diffusion-xl-base-1.0".
        variant: of the files, such as "fp16".

    Raises:
        FileNotFoundError: there is no such folder or repository, or the hub cannot be reached.
        ValueError: the model asks for code of its own.
    """
    folder = Path(name)
    try:
        is_local = folder.exists() or name.startswith(("/", ".", "~")) or name.count("/") != 1
    except (OSError, ValueError) as error:  # too long, or with a null character
        raise FileNotFoundError(f"there is no model {name!r}: {reason(error)}") from None
    if is_local:
        return folder
    offline: Exception | None = None
    try:
        model_info(name, timeout=TIMEOUT)
    except HFValidationError:
        raise FileNotFoundError(f"there is no folder {name}") from None
    except Exception as error:  # the hub, proxies and sockets raise errors of every kind
        offline = error
    try:
        with _quiet():
            index = hf_hub_download(name, INDEX, local_files_only=offline is not None)
            check_model(Path(index).parent)
            folder = DiffusionPipeline.download(
                name,
                use_safetensors=True,
                variant=variant,
                trust_remote_code=False,
                local_files_only=offline is not None,
            )
    except LocalEntryNotFoundError as error:
        raise FileNotFoundError(
            f"{name} is neither a folder nor in the cache of the Hugging Face hub, and the hub "
            f"cannot be reached or has no such model ({reason(offline or error)}): on a machine "
            f"with a network, fetch it by `{shlex.join(['hf', 'download', name])}`"
        ) from error
    except OSError as error:
        raise FileNotFoundError(f"{name} cannot be downloaded: {reason(error)}") from error
    return Path(folder)


def check_model(folder: Path) -> str:
    """Refuse a folder that holds no model, or a model that needs code of its own.

    Returns:
        The name of its pipeline's class.

    Raises:
        ValueError: it is no model, or a part is not a class of diffusers or transformers.
        FileNotFoundError: there is no model.
    """
    index = _index(folder)
    for name, (library, kind) in parts_of(folder).items():
        if library is None and kind is None:  # this model has no such part
            continue
        module = getattr(diffusers.pipelines, str(library), None)
        known = library in ("diffusers", "transformers") or (
            isinstance(module, ModuleType) and module.__name__.startswith("diffusers.pipelines.")
        )
        # an Auto class may run code from the folder
        if not known or (library == "transformers" and str(kind).startswith("Auto")):
            raise ValueError(
                f"the model in {folder} asks for {library}.{kind} as its {name}: only classes of "
                "diffusers and transformers are loaded, never code that comes with a model"
            )
    return index["_class_name"]


def load_model(
    pipeline: type[DiffusionPipeline],
    folder: Path,
    options: RunOptions,
    device: str,
    lora: Path | None = None,
) -> Any:
    """The model on its device, loaded as this class, without progress bars of its own.

    Args:
        options: how to load it; `dtype` is the name of one of torch's.
        lora: file of a LoRA to load with it.

    Raises:
        ValueError: it cannot be loaded so, or lacks weights; the message says why.
    """
    check_model(folder)
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    usual = torch.get_default_dtype()
    try:
        with all_weights(PreTrainedModel, ModelMixin):
            pipe: Any = pipeline.from_pretrained(
                folder,
                dtype=getattr(torch, options.dtype),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                variant=options.variant,
            )
        if options.offload == "model":
            pipe.enable_model_cpu_offload(device=device)
        elif options.offload == "sequential":
            pipe.enable_sequential_cpu_offload(device=device)
        else:
            pipe.to(device)
    except Exception as error:  # broken files raise errors of every kind
        torch.set_default_dtype(usual)  # diffusers leaves the model's where it cannot build a part
        why = reason(error)
        if "safetensors" in why.replace(name := str(folder), ""):
            why += (
                "; only safetensors are read, never pickle files. To convert a model that you "
                "trust: pipe = diffusers.DiffusionPipeline.from_pretrained("
                f"{name!r}, local_files_only=True); "
                f"pipe.save_pretrained({name!r} + '-safetensors', safe_serialization=True)"
            )
        raise ValueError(f"the model in {folder} cannot be loaded: {why}") from error
    if lora is not None:
        with _quiet():
            add_lora(pipe, lora)
    for is_wanted, name in ((options.vae_tiling, "tiling"), (options.vae_slicing, "slicing")):
        if is_wanted:
            try:
                getattr(pipe.vae, f"enable_{name}")()
            except (AttributeError, NotImplementedError):
                raise ValueError(
                    f"--vae-{name}: this model's decoder has no {name}: leave it out"
                ) from None
    pipe.set_progress_bar_config(disable=True)
    return pipe


def fingerprint(folder: Path) -> str:
    """A SHA-256 that identifies a model, or a part of one: of all small files of its parts, and of
    blocks all over the large ones, so that it takes little time."""
    digest = hashlib.sha256()
    names = parts_of(folder) if (folder / INDEX).is_file() else [""]
    parts = sorted(name for name in names if (folder / name).is_dir())
    files = (path for name in parts for path in sorted((folder / name).rglob("*")))
    for path in (folder / INDEX, *files):
        if not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()!a} {size}\n".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(BLOCK, -(-size // BLOCKS))):
                file.seek(start)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()


def _index(folder: Path) -> dict[str, Any]:
    """What the model's index says, in which `_class_name` is a string."""
    path = folder / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no model in {folder}: it has no {INDEX}; give a folder that diffusers' "
            "save_pretrained wrote, or the name of a model on the hub"
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    name = index.get("_class_name") if isinstance(index, dict) else None
    if isinstance(name, list):
        raise ValueError(
            f"the model in {folder} asks for a pipeline of its own, {'.'.join(map(str, name))}: "
            "code that comes with a model is never run"
        )
    if not isinstance(name, str):
        raise ValueError(f"{path} does not name one of diffusers' pipelines as its _class_name")
    return index


def parts_of(folder: Path) -> dict[str, list[Any]]:
    """(library, class) of each part that a model's index names."""
    return {
        name: value
        for name, value in _index(folder).items()
        if isinstance(value, list) and len(value) == 2 and not name.startswith("_")
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Without diffusers' own remarks, and its warnings about what is fetched."""
    library = logging.getLogger("diffusers")
    level = library.level
    library.setLevel(logging.ERROR)
    try:
        yield
    finally:
        library.setLevel(level)
