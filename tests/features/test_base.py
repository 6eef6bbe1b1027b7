import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from vendi_guidance.features.base import FrameMean, FromFunction, load_features
from vendi_guidance.features.images import open_image_embedder

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def test_features_come_back_from_every_kind_of_file(tmp_path):
    np.save(tmp_path / "x.npy", X.double().numpy())
    np.savez(tmp_path / "one.npz", anything=X.numpy())
    np.savez_compressed(tmp_path / "two.npz", features=X.numpy(), names=np.array(["a"]))
    save_file({"anything": X}, tmp_path / "one.safetensors")
    save_file({"features": X, "sha256": torch.ones(5)}, tmp_path / "two.safetensors")
    for path in tmp_path.iterdir():
        features = load_features(path)
        assert features.dtype == torch.float32
        assert torch.equal(features, X), path


def test_half_precision_and_whole_numbers_are_features_too(tmp_path):
    np.save(tmp_path / "half.npy", X.half().numpy())
    np.save(tmp_path / "whole.npy", np.arange(6).reshape(2, 3))
    assert torch.equal(load_features(tmp_path / "half.npy"), X.half().float())
    assert torch.equal(load_features(tmp_path / "whole.npy"), torch.arange(6.0).view(2, 3))


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
        ("pickle.npy", "damaged or has objects"),
        ("many.npz", 'contains a, b: name one array "features"'),
        ("none.npz", "contains nothing: name one"),
        ("torn.npy", "damaged"),
        ("header.npy", "damaged"),
        ("torn.npz", "damaged"),
        ("torn.safetensors", "not a readable safetensors"),
        ("x.csv", "features are read from .npy, .npz or .safetensors, not from"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            load_features(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.npy"):
        load_features(tmp_path / "nothing.npy")


def test_any_function_is_an_embedder():
    lengths = FromFunction(lambda words: np.array([[len(word)] for word in words]), "length")
    features = lengths.embed(["a", "bcd"])
    assert features.dtype == torch.float32 and features.tolist() == [[1.0], [3.0]]
    weighted = torch.nn.Linear(3, 2)
    features = FromFunction(lambda items: weighted(X[: len(items)]), "linear").embed("abc")
    assert features.shape == (3, 2) and not features.requires_grad


@pytest.mark.parametrize("shape", [(3,), (2, 4)])
def test_a_function_has_to_give_a_row_for_each_item(shape):
    with pytest.raises(ValueError, match=r"f returned features of shape .* for 3 items"):
        FromFunction(lambda _items: torch.ones(shape), "f").embed("abc")


def video(levels):
    return [Image.new("L", (4, 4), level) for level in levels]


def test_a_videos_feature_is_the_mean_over_its_frames():
    embedder = FrameMean(open_image_embedder("pixels:1"))
    features = embedder.embed([video([0, 255]), video([255] * 40)])
    torch.testing.assert_close(features, torch.tensor([[0.5] * 3, [1.0] * 3]))
    assert embedder.name == "pixels, mean of frames"
    assert embedder.settings["frames"] == 16 and embedder.settings["size"] == 1


def test_frames_are_taken_evenly_from_first_to_last():
    seen = []
    frames = FromFunction(lambda images: seen.extend(images) or torch.ones(len(images), 1), "f")
    FrameMean(frames, frames=3).embed([list("abcdefg"), list("xy")])
    assert seen == ["a", "d", "g", "x", "y"]


def test_videos_without_frames_are_refused():
    embedder = open_image_embedder("pixels:1")
    with pytest.raises(ValueError, match="video 1 has no frames"):
        FrameMean(embedder).embed([video([0]), []])
    with pytest.raises(ValueError, match=r"frames must be .* got 0"):
        FrameMean(embedder, frames=0)
