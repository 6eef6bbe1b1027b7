import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vendi_guidance.features.base import FromFunction, load_features

X = torch.arange(15.0).view(5, 3)


def test_features_come_back_from_every_kind_of_file(tmp_path):
    np.save(tmp_path / "x.npy", X.double().numpy())
    np.save(tmp_path / "half.npy", X.half().numpy())
    np.save(tmp_path / "whole.npy", X.numpy().astype(int))
    np.savez(tmp_path / "one.npz", anything=X.numpy())
    np.savez_compressed(tmp_path / "two.npz", features=X.numpy(), names=np.array(["a"]))
    save_file({"anything": X}, tmp_path / "one.safetensors")
    save_file({"features": X, "sha256": torch.ones(5)}, tmp_path / "two.safetensors")
    for path in tmp_path.iterdir():
        features = load_features(str(path))
        assert features.dtype == torch.float32
        assert torch.equal(features, X), path


def test_files_without_features_are_refused_by_name(tmp_path):
    np.save(tmp_path / "line.npy", np.ones(3))
    np.save(tmp_path / "nan.npy", np.full((2, 2), np.nan))
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "many.npz", a=X.numpy(), b=X.numpy())
    np.savez(tmp_path / "none.npz")
    for name in ("torn.npy", "torn.npz", "torn.safetensors"):
        (tmp_path / name).write_bytes(b"PK\x03\x04")
    whole = (tmp_path / "line.npy").read_bytes()
    (tmp_path / "header.npy").write_bytes(whole.replace(b"(3,)", b"(3(("))
    (tmp_path / "x.csv").write_text("1,2")
    for name, words in (
        ("line.npy", "must have shape"),
        ("nan.npy", "NaN or infinity, first in row 0"),
        ("words.npy", "number"),
        ("pickle.npy", "damaged or contains Python objects"),
        ("many.npz", 'contains a, b: name one array "features"'),
        ("none.npz", "contains nothing: name one"),
        *((name, "damaged") for name in ("torn.npy", "header.npy", "torn.npz")),
        ("torn.safetensors", "not a readable safetensors"),
        ("x.csv", "features are read from .npy, .npz or .safetensors, not from"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            load_features(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.npy"):
        load_features(tmp_path / "nothing.npy")


def test_any_function_is_an_embedder_that_gives_a_row_for_each_item():
    lengths = FromFunction(lambda words: np.array([[len(word)] for word in words]), "length")
    features = lengths.embed(["a", "bcd"])
    assert features.dtype == torch.float32 and features.tolist() == [[1.0], [3.0]]
    weighted = torch.nn.Linear(3, 2).to(X)
    features = FromFunction(lambda items: weighted(X[: len(items)]), "linear").embed("abc")
    assert features.shape == (3, 2) and not features.requires_grad
    for shape in ((3,), (2, 4)):
        wrong = FromFunction(lambda _items, shape=shape: torch.ones(shape), "f")
        with pytest.raises(ValueError, match=r"f returned shape .* for 3 items"):
            wrong.embed("abc")
