"""Safetensors with a JSON header: files written completely or not at all, and bytes."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from vendi_guidance.storage.files import whole_file


def save_tensors(path: Path, tensors: dict[str, Tensor | None], header: dict[str, Any]) -> None:
    """Write tensors, those that are None left out, and a header of JSON values.

    Raises:
        OSError: the file cannot be written; the message is the operating system's.
    """
    content = pack(tensors, header)
    with whole_file(path) as temporary:  # not by save_file, which hides the system's error
        temporary.write_bytes(content)


def pack(tensors: Mapping[str, Tensor | None], header: Any) -> bytes:
    """Tensors, those that are None left out, and a header of JSON values, for `unpack`."""
    given = {name: value for name, value in tensors.items() if value is not None}
    ready = {name: value.detach().contiguous().cpu() for name, value in given.items()}
    return save(ready, {"header": json.dumps(header)})


def unpack(content: bytes) -> tuple[Any, dict[str, Tensor]]:
    """The header, and the tensors by name, on the CPU."""
    length = int.from_bytes(content[:8], "little")  # of the description that follows it
    described = json.loads(content[8 : 8 + length])
    return json.loads(described["__metadata__"]["header"]), load(content)


def load_tensors(path: Path, names: Iterable[str] | None = None) -> tuple[Any, dict[str, Tensor]]:
    """The header and the tensors of a safetensors file.

    Args:
        names: of the tensors to read; None reads all.

    Returns:
        The header, {} where the file has none, and the tensors by name, on the CPU.

    Raises:
        ValueError: the file is damaged, not a safetensors file, or lacks one of `names`.
        FileNotFoundError: there is no such file.
    """
    try:
        with safe_open(path, "pt") as stored:
            header = json.loads((stored.metadata() or {}).get("header", "{}"))
            names = stored.keys() if names is None else names
            return header, {name: stored.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except (SafetensorError, ValueError, RecursionError, OSError) as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from None
