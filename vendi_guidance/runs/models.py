"""Loading of untrusted models from a folder or the Hugging Face hub.

Code that comes with a model is never run: weights are read from safetensors only, and all parts of
a model must be classes of diffusers or transformers.
"""

import hashlib
import json
import logging
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
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
"""A fingerprint covers this many blocks of a large file, of `BLOCK` bytes each."""

WEIGHTS = re.compile(r"[^.]+\.safetensors(\.index\.json)?")
"""Names of weight files without a variant, and of their index."""
WEIGHT_SUFFIXES = {".safetensors", ".bin", ".msgpack", ".onnx", ".onnx_data", ".pb"}
"""Suffixes of weight files, in safetensors and in other formats."""

TIMEOUT = 10
"""Seconds after which a hub that does not answer counts as unreachable."""

BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError)
"""Errors of pipeline calls whose parts were loaded but do not fit together."""


def find_model(name: str, variant: str | None = None) -> Path:
    """The folder of a model, downloaded to the cache of the Hugging Face hub if necessary.

    Args:
        name: a folder, or a repository on the hub such as "stabilityai/sdxl-turbo".
        variant: variant of the weight files to download, such as "fp16".

    Raises:
        FileNotFoundError: there is no such folder or repository, or the hub cannot be reached.
        ValueError: the model requires custom code.
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
    """Refuse a folder without a model, and a model that requires custom code.

    Returns:
        Name of the model's pipeline class.

    Raises:
        ValueError: the index is invalid, or a part is not a class of diffusers or transformers.
        FileNotFoundError: the folder has no index.
    """
    index = _index(folder)
    for name, (library, kind) in parts_of(folder).items():
        if library is None and kind is None:  # an optional part that this model does not have
            continue
        module = getattr(diffusers.pipelines, str(library), None)
        known = library in ("diffusers", "transformers") or (
            isinstance(module, ModuleType) and module.__name__.startswith("diffusers.pipelines.")
        )
        # an Auto class may run code from the model's folder
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
    """Load a model onto its device, without progress bars.

    Args:
        options: how to load it; `dtype` is the name of a torch dtype.
        lora: file of a LoRA to load into it.

    Raises:
        ValueError: it cannot be loaded, or weights are missing; the message gives the reason.
    """
    check_model(folder)
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    default_dtype = torch.get_default_dtype()
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
        # when a part cannot be built, diffusers leaves the model's dtype as torch's default
        torch.set_default_dtype(default_dtype)
        why, name = reason(error), str(folder)
        if "safetensors" in why.replace(name, ""):
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
        try:
            if is_wanted:
                getattr(pipe.vae, f"enable_{name}")()
        except (AttributeError, NotImplementedError):
            problem = f"this model's decoder does not support {name}: leave it out"
            raise ValueError(f"--vae-{name}: {problem}") from None
    pipe.set_progress_bar_config(disable=True)
    return pipe


def fingerprint(folder: Path, variant: str | None = None, began: str | None = None) -> str:
    """SHA-256 of the files of a model, or of one of its parts, that a run loads. Of large files it
    covers only blocks spread over them, so that it is fast.

    Args:
        variant: variant of the weights that are loaded, such as "fp16".
        began: fingerprint that a resumed run began with. In older versions it covered all files,
            loaded or not; if this one does and still matches, it is returned.
    """
    names = sorted(parts_of(folder)) if (folder / INDEX).is_file() else [""]
    parts = [sorted((folder / name).rglob("*")) for name in names if (folder / name).is_dir()]
    found = _digest(folder, (file for part in parts for file in _loaded(part, variant)))
    if began in (None, found):
        return found
    of_all_files = _digest(folder, (file for part in parts for file in part))
    return began if began == of_all_files else found


def _loaded(files: Sequence[Path], variant: str | None) -> list[Path]:
    """The files of a part that are loaded: weights in safetensors, of the variant if there are any
    and else without one, and all files that are not weights."""
    plain = {file: file.name.replace(f".{variant}", "", 1) for file in files}
    weights = [file for file in files if WEIGHTS.fullmatch(plain[file])]
    weights = [file for file in weights if file.name != plain[file]] or weights
    return [file for file in files if file in weights or not WEIGHT_SUFFIXES & {*file.suffixes}]


def _digest(folder: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in filter(Path.is_file, (folder / INDEX, *files)):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()!a} {size}\n".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(BLOCK, -(-size // BLOCKS))):
                file.seek(start)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()


def _index(folder: Path) -> dict[str, Any]:
    """The content of a model's index; its `_class_name` is a string."""
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
            f"the model in {folder} asks for a custom pipeline, {'.'.join(map(str, name))}: "
            "code that comes with a model is never run"
        )
    if not isinstance(name, str):
        raise ValueError(f"{path} does not name a pipeline of diffusers as its _class_name")
    return index


def parts_of(folder: Path) -> dict[str, list[Any]]:
    """(library, class) of each part in a model's index, by the part's name."""
    return {
        name: value
        for name, value in _index(folder).items()
        if isinstance(value, list) and len(value) == 2 and not name.startswith("_")
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence diffusers' log messages, including its warnings about downloads."""
    library = logging.getLogger("diffusers")
    level = library.level
    library.setLevel(logging.ERROR)
    try:
        yield
    finally:
        library.setLevel(level)
