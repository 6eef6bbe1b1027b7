"""Safetensors files with a header."""

import pytest
import torch
from safetensors.torch import save_file

from vendi_guidance.storage.tensors import load_tensors, save_tensors

X = torch.arange(6.0).view(2, 3)


def test_header_and_tensors_are_read_back_all_or_those_that_are_named(tmp_path):
    header = {"prompts": ["кошка", None], "step": 3}
    save_tensors(tmp_path / "a.safetensors", {"x": X, "half": X.T.half(), "none": None}, header)
    read, tensors = load_tensors(tmp_path / "a.safetensors")
    assert read == header and set(tensors) == {"x", "half"}
    assert torch.equal(tensors["x"], X) and torch.equal(tensors["half"], X.T.half())
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    save_file({"x": X, "y": X + 1}, tmp_path / "a.safetensors")  # without our header
    header, tensors = load_tensors(tmp_path / "a.safetensors", ["y"])
    assert header == {} and list(tensors) == ["y"] and torch.equal(tensors["y"], X + 1)
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        load_tensors(tmp_path / "a.safetensors", ["z"])


def test_damaged_and_missing_files_are_named(tmp_path):
    save_tensors(tmp_path / "a.safetensors", {"x": X}, {})
    whole = (tmp_path / "a.safetensors").read_bytes()
    for content in (b"", whole[:20], whole[:-1], b"PK\x03\x04"):
        (tmp_path / "a.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.safetensors is not a readable safetensors file"):
            load_tensors(tmp_path / "a.safetensors")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*b\.safetensors"):
        load_tensors(tmp_path / "b.safetensors")
