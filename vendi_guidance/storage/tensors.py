"""Safetensors with a JSON header, as crash-safe files or as bytes."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from vendi_guidance.storage.files import whole_file


def save_tensors(path: Path, tensors: Mapping[str, Tensor | None], header: dict[str, Any]) -> None:
    """Write what `pack` returns; an OSError has the operating system's message."""
    content = pack(tensors, header)
    with whole_file(path) as temporary:  # safetensors' save_file hides the system's error
        temporary.write_bytes(content)


def pack(tensors: Mapping[str, Tensor | None], header: Any) -> bytes:
    """Serialize tensors, without those that are None, and a header of JSON values."""
    given = {name: value for name, value in tensors.items() if value is not None}
    # copies, as safetensors refuses tensors that share memory
    ready = {name: value.detach().cpu().clone().contiguous() for name, value in given.items()}
    return save(ready, {"header": json.dumps(header)})


def unpack(content: bytes) -> tuple[Any, dict[str, Tensor]]:
    """The header and the tensors by name that `pack` serialized; tensors are on the CPU."""
    length = int.from_bytes(content[:8], "little")  # of safetensors' JSON, which comes next
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    return json.loads(metadata["header"]), load(content)


def load_tensors(path: Path, names: Iterable[str] | None = None) -> tuple[Any, dict[str, Tensor]]:
    """The header of a safetensors file, {} if it has none, and its tensors of these names or all,
    on the CPU. FileNotFoundError if there is no file; ValueError if it is damaged, not a
    safetensors file, or lacks one of `names`."""
    try:
        with safe_open(path, "pt") as stored:
            header = json.loads((stored.metadata() or {}).get("header", "{}"))
            names = stored.keys() if names is None else names
            return header, {name: stored.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
