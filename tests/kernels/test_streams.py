import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.data import DataLoader, TensorDataset

from tests.helpers.every_score import WITH_PROMPTS, every_score, normal, scores_of
from vendi_guidance.kernels.base import as_features
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.kernels.streams import as_stream, chunks, gather
from vendi_guidance.scores.functional import cluster_vendi, conditional_vendi, vendi
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, RandomFourier

N = 50
K, J = Gaussian(1.0), Gaussian(2.0)
SPECTRA = [Exact(), Nystrom(20), RandomFourier(40), Lanczos()]
X, T = normal(0, N, 4), normal(1, N, 3)
NO_NUMBERS = [{"x": X}, "a text", None, np.array([["a"]]), [1.0, 2.0], (X[:7], T[:7])]


def memory_mapped(x, folder):
    np.save(folder / "x.npy", x.numpy())
    return np.load(folder / "x.npy", mmap_mode="r")


def slice_of_safetensors(x, folder):
    save_file({"x": x}, folder / "x.safetensors")
    return safe_open(folder / "x.safetensors", "pt").get_slice("x")


SOURCES = {
    "generator": lambda x, folder: (chunk for chunk in x.split(7)),
    "arrays": lambda x, folder: (chunk.numpy() for chunk in x.split(7)),
    "list of chunks": lambda x, folder: list(x.split(7)),
    "one chunk": lambda x, folder: [x],
    "rows": lambda x, folder: iter(x.split(1)),
    "dataset": lambda x, folder: DataLoader(TensorDataset(x), batch_size=7),
    "bare dataset": lambda x, folder: DataLoader(x, batch_size=7),
    "memory map": memory_mapped,
    "safetensors": slice_of_safetensors,
}


@every_score
@pytest.mark.parametrize("spectrum", SPECTRA, ids=["exact", "nystrom", "fourier", "lanczos"])
def test_a_stream_scores_as_its_features_in_memory_do(name, spectrum):
    score = scores_of(N)[name]
    for kernels in ((K, J), (Cosine(), Cosine())):
        if isinstance(spectrum, RandomFourier) and Cosine() in kernels:
            continue
        expected = pytest.approx(float(score(X, T, *kernels, spectrum)), rel=1e-9)
        assert float(score(iter(X.split(7)), iter(T.split(11)), *kernels, spectrum)) == expected
        if name in WITH_PROMPTS:
            assert float(score(iter(X.split(7)), T, *kernels, spectrum)) == expected
            assert float(score(X, iter(T.split(11)), *kernels, spectrum)) == expected
            same = DataLoader(X, batch_size=7)  # may be read twice
            expected = pytest.approx(float(score(X, X, *kernels, spectrum)), rel=1e-9)
            assert float(score(same, same, *kernels, spectrum)) == expected


@pytest.mark.parametrize("chunk", [1, 8, 4096])
@pytest.mark.parametrize("source", SOURCES)
def test_whatever_gives_chunks_is_a_stream(source, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr("vendi_guidance.kernels.streams.CHUNK", chunk)
    for x in (X.softmax(dim=1), X.softmax(dim=1).half()):
        features = as_features(x)
        assert torch.equal(gather(as_stream(SOURCES[source](x, tmp_path))), features)
        for kernel, spectrum in ((K, RandomFourier(40)), (Cosine(), Exact()), (K, Exact())):
            how = {"kernel": kernel, "spectrum": spectrum, "weights": normal(2, N).softmax(dim=0)}
            expected = float(vendi(features, **how))
            found = float(vendi(SOURCES[source](x, tmp_path), **how))
            assert found == pytest.approx(expected, rel=1e-5)


def test_a_stream_is_read_as_it_is_needed():
    read = []
    parts = chunks(as_stream(read.append(number) or X[:5] for number in range(10)))
    assert read == [0]
    next(parts), next(parts)
    assert read == [0, 1]


def test_what_holds_single_items_is_no_stream():
    for x in (X, X.numpy(), X.tolist(), "text", ["a", "b"], [], range(3), [1, 2], (0.5, 1.0)):
        assert as_stream(x) is None


def test_a_stream_without_chunks_or_read_before_has_no_score():
    read = (chunk for chunk in X.split(7))
    vendi(read, K)
    for empty in (iter([]), DataLoader(TensorDataset(X[:0])), read):
        with pytest.raises(ValueError, match="stream is empty, or was read before"):
            vendi(empty, Cosine())
    with pytest.raises(ValueError, match=r"got \(0,\)"):
        vendi([], K)
    same = (chunk for chunk in X.split(5))
    with pytest.raises(ValueError, match="only be read once"):
        conditional_vendi(same, same, K, J)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (X[:0], r"starts at row 7: features of shape \(0, 4\) are empty"),
        (X[:3, :2], "chunks must agree in d, got 4 and 2"),
        (X[:3] / 0, "starts at row 7: features contain NaN or infinity, first in row 0"),
        *((no_numbers, "in the chunk that starts at row 7") for no_numbers in NO_NUMBERS),
    ],
)
def test_every_chunk_must_be_features_of_one_width(bad, message):
    for spectrum in (Exact(), RandomFourier(20)):
        chunks_ = [X[:7], bad, X[7:]]
        with pytest.raises(ValueError, match=message):
            vendi(iter(chunks_), K, spectrum=spectrum)
        with pytest.raises(ValueError, match=message):
            conditional_vendi(normal(2, 53, 2), iter(chunks_), K, J, spectrum=spectrum)


@pytest.mark.parametrize("spectrum", [Exact(), RandomFourier(20)])
def test_samples_prompts_weights_and_labels_must_end_together(spectrum):
    for longer, x, t in (("x", X, T[:30]), ("t", X[:30], T)):
        for size in (1, 10, 30, 50):
            for cut_x, cut_t in ((x.split(size), t.split(7)), (x.split(7), t.split(size))):
                with pytest.raises(ValueError, match=f"items, but only {longer} has row 30"):
                    conditional_vendi(iter(cut_x), iter(cut_t), K, J, spectrum=spectrum)
    with pytest.raises(ValueError, match=r"weights must have shape \(40,\)"):
        vendi(iter(X[:40].split(7)), K, weights=np.full(N, 1 / N), spectrum=spectrum)
    with pytest.raises(ValueError, match="got 50 labels for n = 40 items"):
        cluster_vendi(iter(X[:40].split(7)), range(N), K)
