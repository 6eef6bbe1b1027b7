"""Damage to models' files: pickles that run code, and weights that are missing."""

import os
import pickle
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file


class Bomb:
    """Unpickled, it leaves a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def write_bomb(path: Path, trace: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(trace)))


def drop_weight(folder: Path, names: str = "") -> str:
    """Take the first weight with these letters out of a folder's only safetensors file."""
    [path] = folder.glob("*.safetensors")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    dropped = next(name for name in tensors if names in name)
    del tensors[dropped]
    save_file(tensors, path, metadata)
    return dropped
