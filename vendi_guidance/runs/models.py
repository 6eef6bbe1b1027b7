"""Loading models from folders that may come from strangers.

No code in such a folder is run: weights are read from safetensors only, and the model's parts are
classes of diffusers and transformers.
"""

import hashlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import diffusers
import torch
import transformers
from diffusers import DiffusionPipeline

INDEX = "model_index.json"

BLOCK = 2**16
BLOCKS = 64
"""The number of blocks of a large file that its fingerprint covers, of `BLOCK` bytes each."""


def check_model(folder: Path) -> None:
    """Refuse a folder that holds no model, or a model that needs code of its own.

    Raises:
        ValueError: it is no model, or a part is not a class of diffusers or transformers.
        FileNotFoundError: there is no model.
    """
    for name, (library, kind) in _parts(folder).items():
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


def load_model(pipeline: type[DiffusionPipeline], folder: Path, dtype: str, device: str) -> Any:
    """The model on its device, loaded as this class, without progress bars of its own.

    Raises:
        ValueError: it cannot be loaded; the message says why.
    """
    check_model(folder)
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    try:
        pipe: Any = pipeline.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        ).to(device)
    except Exception as error:  # broken files raise errors of every kind
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if "safetensors" in reason:
            name = str(folder)
            reason += (
                "; only safetensors are read, never pickle files. To convert a model that you "
                "trust: pipe = diffusers.DiffusionPipeline.from_pretrained("
                f"{name!r}, local_files_only=True); "
                f"pipe.save_pretrained({name!r} + '-safetensors', safe_serialization=True)"
            )
        raise ValueError(f"the model in {folder} cannot be loaded: {reason}") from error
    pipe.set_progress_bar_config(disable=True)
    return pipe


def fingerprint(folder: Path) -> str:
    """A SHA-256 that identifies a model: of all small files of its parts, and of blocks all over
    the large ones, so that it takes little time."""
    digest = hashlib.sha256()
    parts = sorted(name for name in _parts(folder) if (folder / name).is_dir())
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


def _parts(folder: Path) -> dict[str, list[Any]]:
    """(library, class) of each part that the model's index names."""
    path = folder / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no model in {folder}: it has no {INDEX}; give a folder that "
            "diffusers' save_pretrained wrote"
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(index, dict) or not isinstance(index.get("_class_name"), str):
        raise ValueError(f"{path} does not name one of diffusers' pipelines as its _class_name")
    return {
        name: value
        for name, value in index.items()
        if isinstance(value, list) and len(value) == 2 and not name.startswith("_")
    }
