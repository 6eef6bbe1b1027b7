"""Damages model files: pickles that run code, and missing weights."""

import os
import pickle
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file


class Bomb:
    """Creates the folder `trace` when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def write_bomb(path: Path, trace: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(trace)))


def drop_weight(folder: Path, names: str = "") -> str:
    """Delete the first weight whose name contains `names` from a folder's only safetensors file;
    returns its name."""
    [path] = folder.glob("*.safetensors")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    dropped = next(name for name in tensors if names in name)
    del tensors[dropped]
    save_file(tensors, path, metadata)
    return dropped
