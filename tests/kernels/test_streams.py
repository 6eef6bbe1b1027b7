import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.data import DataLoader, TensorDataset

from vendi_guidance.kernels.custom import Sum
from vendi_guidance.kernels.ngrams import NGram
from vendi_guidance.kernels.standard import Cosine, Gaussian, ProbabilityProduct
from vendi_guidance.kernels.streams import Stream, as_stream, chunks, gather, side_by_side, width
from vendi_guidance.scores.functional import (
    cluster_rke,
    cluster_vendi,
    conditional_rke,
    conditional_vendi,
    information_rke,
    information_vendi,
    intdiv,
    rke,
    vendi,
)
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, RandomFourier

N = 50
K, J = Gaussian(1.0), Gaussian(2.0)
SPECTRA = [Exact(), Nystrom(20), RandomFourier(40), Lanczos()]
P = np.random.default_rng(2).dirichlet(np.ones(N))
LABELS = [row % 3 for row in range(N)]
SCORES = {
    "vendi": lambda x, t, k, j, s: vendi(x, k, spectrum=s),
    "truncated_vendi": lambda x, t, k, j, s: vendi(x, k, truncation=5, order=1.5, spectrum=s),
    "weighted_vendi": lambda x, t, k, j, s: vendi(x, k, weights=P, spectrum=s),
    "vendi_inf": lambda x, t, k, j, s: vendi(x, k, order=math.inf, spectrum=s),
    "rke": lambda x, t, k, j, s: rke(x, k, spectrum=s),
    "conditional_vendi": lambda x, t, k, j, s: conditional_vendi(x, t, k, j, spectrum=s),
    "conditional_rke": lambda x, t, k, j, s: conditional_rke(x, t, k, j, spectrum=s),
    "information_vendi": lambda x, t, k, j, s: information_vendi(x, t, k, j, spectrum=s),
    "information_rke": lambda x, t, k, j, s: information_rke(x, t, k, j, spectrum=s),
    "cluster_vendi": lambda x, t, k, j, s: cluster_vendi(x, LABELS, k, spectrum=s),
    "cluster_rke": lambda x, t, k, j, s: cluster_rke(x, LABELS, k, spectrum=s),
    "intdiv": lambda x, t, k, j, s: intdiv(x, k),
}
every_score = pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())


def normal(seed: int, d: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(N, d)))


X, T = normal(0, 4), normal(1, 3)


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


# The same scores as in memory


@every_score
@pytest.mark.parametrize("spectrum", SPECTRA, ids=["exact", "nystrom", "fourier", "lanczos"])
def test_a_stream_scores_as_its_features_in_memory_do(score, spectrum):
    for kernels in ((K, J), (Cosine(), Cosine()), (Sum([K, J]), J)):
        if isinstance(spectrum, RandomFourier) and Cosine() in kernels:
            continue
        expected = pytest.approx(float(score(X, T, *kernels, spectrum)), rel=1e-9)
        assert float(score(iter(X.split(7)), iter(T.split(11)), *kernels, spectrum)) == expected
        assert float(score(iter(X.split(7)), T, *kernels, spectrum)) == expected
        assert float(score(X, iter(T.split(11)), *kernels, spectrum)) == expected


@pytest.mark.parametrize("chunk", [1, 8, 4096])
@pytest.mark.parametrize("source", SOURCES)
def test_whatever_gives_chunks_is_a_stream(source, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr("vendi_guidance.kernels.streams.CHUNK", chunk)
    for x in (X, X.float()):
        features = SOURCES[source](x, tmp_path)
        assert as_stream(features) is not None
        gathered = gather(as_stream(SOURCES[source](x, tmp_path)))
        assert torch.equal(gathered, x)
        for kernel, spectrum in ((K, RandomFourier(40)), (Cosine(), Exact()), (K, Exact())):
            expected = float(vendi(x, kernel, spectrum=spectrum))
            found = float(vendi(SOURCES[source](x, tmp_path), kernel, spectrum=spectrum))
            assert found == pytest.approx(expected, rel=1e-9 if x is X else 1e-5)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_samples_and_prompts_may_be_cut_differently(data):
    def cut(x):
        ends = [*sorted(data.draw(st.sets(st.integers(1, N - 1), max_size=6))), N]
        return (x[start:end] for start, end in zip([0, *ends], ends, strict=False))

    both = side_by_side(as_stream(cut(X)), as_stream(cut(T)))
    assert width(both) == 7
    assert torch.equal(gather(both), torch.cat([X, T], dim=1))
    spectrum = RandomFourier(20)
    expected = float(conditional_vendi(X, T, K, J, spectrum=spectrum))
    found = float(conditional_vendi(cut(X), cut(T), K, J, spectrum=spectrum))
    assert found == pytest.approx(expected, rel=1e-9)


def test_half_precision_chunks_are_read_as_single_precision():
    half = X.half()
    expected = float(vendi(half.float(), K, spectrum=RandomFourier(40)))
    found = float(vendi(iter(half.split(7)), K, spectrum=RandomFourier(40)))
    assert found == pytest.approx(expected, rel=1e-6)


def test_probabilities_may_stream_past():
    p = X.softmax(dim=1)
    expected = float(vendi(p, ProbabilityProduct()))
    assert float(vendi(iter(p.split(9)), ProbabilityProduct())) == pytest.approx(expected)


def test_a_stream_is_read_as_it_is_needed():
    read = []

    def chunk(number):
        read.append(number)
        return X[:5]

    parts = chunks(as_stream(chunk(number) for number in range(10)))
    assert read == [0]
    next(parts), next(parts)
    assert read == [0, 1]


def test_what_holds_single_items_is_no_stream():
    for x in (X, X.numpy(), X.tolist(), "text", ["a", "b"], [], range(3), [1, 2], (0.5, 1.0)):
        assert as_stream(x) is None


# Errors


@pytest.mark.parametrize("kernel", [K, Cosine()])
def test_a_stream_without_chunks_has_no_score(kernel):
    for empty in (iter([]), DataLoader(TensorDataset(X[:0]))):
        with pytest.raises(ValueError, match="stream is empty, or was read before"):
            vendi(empty, kernel)
    with pytest.raises(ValueError, match=r"got \(0,\)"):
        vendi([], kernel)


def test_a_generator_can_be_read_once():
    features = (chunk for chunk in X.split(7))
    vendi(features, K)
    with pytest.raises(ValueError, match="stream is empty, or was read before"):
        vendi(features, K)


def test_one_generator_cannot_be_both_samples_and_prompts():
    same = (chunk for chunk in X.split(5))
    with pytest.raises(ValueError, match="only be read once"):
        conditional_vendi(same, same, K, J)


def test_one_dataset_may_be_both_samples_and_prompts():
    same = DataLoader(X, batch_size=7)
    expected = float(conditional_vendi(X, X, K, J))
    assert float(conditional_vendi(same, same, K, J)) == pytest.approx(expected)


@pytest.mark.parametrize("spectrum", [Exact(), RandomFourier(20)])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_bad_row_is_named_by_its_chunk(spectrum, value):
    x = X.clone()
    x[17, 2] = value
    message = "in the chunk that starts at row 14: features hold NaN or infinity, first in row 3"
    with pytest.raises(ValueError, match=message):
        vendi(iter(x.split(7)), K, spectrum=spectrum)
    with pytest.raises(ValueError, match=message):
        conditional_vendi(T, iter(x.split(7)), K, J, spectrum=spectrum)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (X[:0], r"starts at row 7: features of shape \(0, 4\) are empty"),
        (X[0], r"starts at row 7: features must have shape \(n, d\), got \(4,\)"),
        (X[:3, :2], "chunks must agree in d, got 4 and 2"),
        (X[:3].to(torch.complex64), "starts at row 7: features must be real"),
    ],
)
def test_every_chunk_must_be_features_of_one_width(bad, message):
    for spectrum in (Exact(), RandomFourier(20)):
        with pytest.raises(ValueError, match=message):
            vendi(iter([X[:7], bad, X[7:]]), K, spectrum=spectrum)


@pytest.mark.parametrize("spectrum", [Exact(), RandomFourier(20)])
def test_samples_and_prompts_must_end_together(spectrum):
    for longer, x, t in (("x", X, T[:30]), ("t", X[:30], T)):
        message = f"same items, but only {longer} has row 30"
        for size in (1, 10, 30, 50):
            for cut_x, cut_t in ((x.split(size), t.split(7)), (x.split(7), t.split(size))):
                with pytest.raises(ValueError, match=message):
                    conditional_vendi(iter(cut_x), iter(cut_t), K, J, spectrum=spectrum)


def test_weights_and_labels_must_be_as_many_as_rows_that_came():
    with pytest.raises(ValueError, match=r"weights must have shape \(40,\)"):
        vendi(iter(X[:40].split(7)), K, weights=P, spectrum=RandomFourier(20))
    with pytest.raises(ValueError, match="n = 40 labels, got 50"):
        cluster_vendi(iter(X[:40].split(7)), LABELS, K)


def test_a_stream_of_another_thing_than_features_is_refused():
    pairs = DataLoader(TensorDataset(X, T), batch_size=7)
    with pytest.raises(ValueError, match="in the chunk that starts at row 0"):
        vendi(pairs, K)


@pytest.mark.parametrize(
    "chunk",
    [
        {"x": X},
        "a text",
        None,
        np.array([["a"]]),
        [1.0, 2.0],
    ],
    ids=["mapping", "text", "nothing", "array of texts", "row"],
)
def test_a_chunk_that_holds_no_numbers_is_refused(chunk):
    with pytest.raises(ValueError, match="in the chunk that starts at row 0"):
        Stream(iter([chunk]))


# Things that only look like chunks


def test_texts_may_come_from_any_iterable():
    captions = {"a": "a red cat", "b": "a blue cat", "c": "dogs"}
    expected = float(vendi(list(captions.values()), NGram()))
    assert float(vendi(captions.values(), NGram())) == pytest.approx(expected)
    assert float(vendi(iter(captions.values()), NGram())) == pytest.approx(expected)


def test_pictures_are_items_of_a_function_and_no_chunks():
    pictures = [torch.eye(3), torch.ones(3, 3), torch.eye(3)]
    alike = lambda a, b: float(torch.equal(a, b))  # noqa: E731
    score = float(vendi(pictures, alike, order=2))
    assert score == pytest.approx(9 / 5)
