import math
import sys
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.helpers.every_score import WITH_PROMPTS, every_score, normal, scores_of
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.custom import Pairwise, Precomputed, as_kernel
from vendi_guidance.kernels.ngrams import NGram, words
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import cluster_vendi, conditional_vendi, rke, vendi
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, RandomFourier

# Friedman & Dieng (2023), figure 8: less n-gram diversity in the first, yet more to tell apart.
TUXEDOS = [
    "two men in bow ties standing next to steel rafter.",
    "several men in suits talking together in a room.",
    "an older man in a tuxedo standing next to a younger man in a tuxedo wearing glasses.",
    "two men wearing tuxedos glance at each other.",
    "older man in tuxedo sitting next to another younger man in tuxedo.",
]
CAKES = [
    "a man and woman cutting a slice of cake by trees.",
    "a couple of people standing cutting a cake.",
    "the dork with the earring stands next to the asian beauty who is way out of his league.",
    "a newly married couple cutting a cake in a park.",
    "a bride and groom are cutting a cake as they smile.",
]
CAPTIONS = TUXEDOS + CAKES
SPECTRA = [Exact(), Nystrom(200), Lanczos()]

small = settings(deadline=None, max_examples=30)
texts = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6).map(" ".join), min_size=1)


def random_matrix(n: int, seed: int = 0) -> torch.Tensor:
    """A positive semi-definite matrix with similarities of both signs."""
    return Cosine().gram(normal(seed, n, 5))


def random_captions(n: int, seed: int = 0) -> list[str]:
    r = np.random.default_rng(seed)
    return [
        " ".join(f"w{min(k, 50)}" for k in r.zipf(1.5, size=r.integers(1, 9))) for _ in range(n)
    ]


def ngram_by_counting(a: str, b: str, lengths=(1, 2, 3, 4)) -> float:
    total = 0.0
    for n in lengths:
        counts = []
        for tokens in (words(a), words(b)):
            grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
            counts.append(Counter(grams or [tuple(tokens)]))
        inner = sum(counts[0][gram] * counts[1][gram] for gram in counts[0])
        total += inner / math.prod(math.hypot(*count.values()) for count in counts)
    return total / len(lengths)


def gram(items, kernel) -> torch.Tensor:
    x, bound = as_kernel(kernel).bind(items)
    return bound.gram(x)


# A matrix at hand


@every_score
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_gram_matrix_of_a_kernel_scores_as_the_kernel_does(name, spectrum):
    x, t, k, j, rows = normal(0, 40, 3), normal(1, 40, 4), Gaussian(1.0), Gaussian(2.0), range(40)
    mx, mt, score = Precomputed(k.gram(x)), Precomputed(j.gram(t)), scores_of(40)[name]
    expected = pytest.approx(float(score(x, t, k, j, spectrum)), rel=1e-9)
    assert float(score(rows, rows, mx, mt, spectrum)) == expected
    if name in WITH_PROMPTS:
        assert float(score(x, rows, k, mt, spectrum)) == expected
        assert float(score(rows, t, mx, j, spectrum)) == expected


@pytest.mark.parametrize(
    "rows", [[3, 1, 1], (3, 1, 1), np.array([3, 1, 1]), torch.tensor([[3.0], [1.0], [1.0]])]
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_items_of_a_matrix_are_any_of_its_rows_in_its_precision(rows, dtype):
    matrix = random_matrix(5).to(dtype)
    before, wide = matrix.clone(), matrix.to(torch.promote_types(dtype, torch.float32))
    expected = wide[[3, 1, 1]][:, [3, 1, 1]].fill_diagonal_(1)
    expected[1:, 1:] = 1  # copies
    found = gram(rows, Precomputed(matrix))
    assert found.dtype == wide.dtype and torch.equal(matrix, before)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def test_a_matrix_that_is_not_positive_semidefinite_still_has_a_score():
    matrix = torch.eye(3) + torch.tensor([[0, 1, -1], [1, 0, 1], [-1, 1, 0]]) * 0.9
    values = torch.linalg.eigvalsh(matrix.double())
    assert values[0] < 0
    p = values.clamp(min=0) / values.clamp(min=0).sum()
    expected = float(torch.special.entr(p).sum().exp())
    assert float(vendi(range(3), Precomputed(matrix))) == pytest.approx(expected, rel=1e-6)
    squared_norm = float(matrix.square().sum())
    assert float(rke(range(3), Precomputed(matrix))) == pytest.approx(9 / squared_norm, rel=1e-6)


# Any function of two items


def test_a_function_is_called_once_for_each_pair_and_progress_goes_through_the_items():
    called, seen = Counter(), []

    def alike(a, b):
        called[a, b] += 1
        return float(a == b)

    watch = lambda rows: map(lambda row: seen.append(row) or row, rows)  # noqa: E731
    assert float(vendi([3, 1, 4, 2], Pairwise(alike, progress=watch))) == pytest.approx(4)
    assert len(called) == 10 and set(called.values()) == {1} and seen == [0, 1, 2, 3]


@every_score
def test_functions_work_in_every_score(name):
    """Of rows, as tensors; they may return tensors too."""
    x, k, score = normal(0, 12, 3), Cosine(), scores_of(12)[name]
    alike = torch.nn.CosineSimilarity(dim=0)
    expected = pytest.approx(float(score(x, x, k, k, Exact())))
    assert float(score(list(x), x, alike, alike, Exact())) == expected
    assert (
        float(score(x, list(x), k if name in WITH_PROMPTS else alike, alike, Exact())) == expected
    )


def test_a_kernel_of_your_own_needs_its_blocks_alone():
    class Unfinished(Kernel):
        pass

    class Equal(Unfinished):
        def blocks(self, x):
            return lambda rows, columns: (x[rows] == x[columns].T).to(x)

    with pytest.raises(TypeError, match="blocks"):
        Unfinished()
    assert float(vendi(torch.tensor([[1.0], [2.0], [2.0], [1.0]]), Equal())) == pytest.approx(2)


def test_equal_ngrams_are_equal_and_hash_alike():
    assert NGram([1, 2]) == NGram((1, 2)) and hash(NGram([1, 2])) == hash(NGram((1, 2)))
    assert NGram((1,)) != NGram((2,))


# Texts


@small
@given(texts)
def test_ngram_similarity_is_the_mean_cosine_of_the_counts(items):
    expected = [[ngram_by_counting(a, b) for b in items] for a in items]
    torch.testing.assert_close(gram(items, NGram()), torch.tensor(expected))
    expected = [[ngram_by_counting(a, b, (2,)) for b in items] for a in items]
    torch.testing.assert_close(gram(items, NGram((2,))), torch.tensor(expected))


@pytest.mark.parametrize("lengths", [(1,), (1, 2, 3, 4)])
def test_ngram_scores_are_those_of_the_vendi_score_package(lengths):
    """`ngram_vendi_score`, whose module imports more than it needs, for texts of enough words."""
    reference = pytest.importorskip("vendi_score.vendi")
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import normalize

    grams = []
    for n in lengths:
        counter = CountVectorizer(tokenizer=str.split, ngram_range=(n, n), token_pattern=None)
        counts = normalize(counter.fit_transform(CAPTIONS))
        grams.append((counts @ counts.T).toarray())
    expected = reference.score_K(np.mean(grams, axis=0))
    score = float(vendi(CAPTIONS, NGram(lengths, tokenizer=str.split)))
    assert score == pytest.approx(expected, rel=1e-6)


def test_captions_rank_as_published():
    """Repetition within a caption lowers n-gram diversity, but makes captions no more alike."""
    assert vendi(TUXEDOS, NGram()) > vendi(CAKES, NGram())


def test_words_are_lower_case_and_marks_stand_alone():
    assert words("A dog's  life,\n3 cats!") == ["a", "dog", "'", "s", "life", ",", "3", "cats", "!"]
    assert words("été 👍🏽") == ["été", "👍", "🏽"]
    assert gram(["A dog", "a DOG "], NGram()).min() == pytest.approx(1)


def test_texts_shorter_than_n_words_are_like_their_copies_alone():
    similarity, root = gram(["cat", "cat", "a cat", "cat a"], NGram((1, 2))), 0.5**1.5
    torch.testing.assert_close(similarity[0], torch.tensor([1, 1, root, root]))
    torch.testing.assert_close(similarity[2], torch.tensor([root, root, 1, 0.5]))
    assert gram(["abc", "bcd"], NGram((2,), tokenizer=list))[0, 1] == pytest.approx(0.5)


def test_captions_as_prompts_serve_every_spectrum_that_needs_no_frequencies(monkeypatch):
    captions, x = random_captions(60), normal(0, 60, 4).float()
    k, t = Gaussian(2.0), NGram()
    joint = k.gram(x).double() * gram(captions, t).double() / 60
    entropies = [Entropy().of(torch.linalg.eigvalsh(m)) for m in (joint, gram(captions, t) / 60)]
    expected = float((entropies[0] - entropies[1]).exp())
    for spectrum in SPECTRA:
        for features in (x, iter(x.split(7))):
            score = conditional_vendi(features, captions, k, t, spectrum=spectrum)
            assert float(score) == pytest.approx(expected, rel=1e-5)
        assert cluster_vendi(captions, [0, 1] * 30, t, spectrum=spectrum).isfinite()
    few = float(conditional_vendi(x, captions, k, t, spectrum=Nystrom(50)))
    assert few == pytest.approx(expected, rel=0.1)
    with pytest.raises(ValueError, match=r"need a Gaussian kernel.*NGram.*Nystrom\(64\)"):
        conditional_vendi(x, captions, k, t, spectrum=RandomFourier(64))
    monkeypatch.setattr("vendi_guidance.scores.spectra.LEADING_BELOW", 1)
    monkeypatch.setattr("vendi_guidance.scores.spectra.DENSE_UP_TO", 10)  # block by block
    rows, bound = NGram().bind(captions)
    found, error = Lanczos(deflated=10).estimate(rows, bound, Entropy())
    assert 0 < float(error) < 0.05
    assert abs(float(found) - float(entropies[1])) < 5 * float(error)


def test_captions_take_no_memory_but_that_of_counts_and_tiles():
    captions = random_captions(2000)
    rke(captions[:10], NGram())  # imports are not what is measured
    tracemalloc.start()
    assert 1 < float(rke(captions, NGram())) < 2000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2000**2 * 4 / 2


def test_texts_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ImportError, match=r"vendi-guidance\[metrics\]"):
        vendi(["a cat"], NGram())


# What is refused


def unequal(a, b):
    return 1.0 if a == b else 7.0


MATRICES = [
    (torch.ones(2, 3), r"square, got shape \(2, 3\)"),
    (torch.ones(3), r"in the similarity matrix: .* got \(3,\)"),
    (torch.tensor([[1, math.nan], [0, 1]]), "in the similarity matrix: .* in row 0"),
    (torch.tensor([[1, 0.5], [0.4, 1]]), "symmetric, got some that differ by 0.0999"),
    (torch.zeros(2, 2), "itself must be 1, got 0.0"),
    (torch.tensor([[1, -1.5], [-1.5, 1]]), r"lie in \[-1, 1\], got -1.5"),
]
ITEMS = [
    (range(4), Precomputed(torch.eye(3)), "from 0 to 2, got 3"),
    ([-1], Precomputed(torch.eye(3)), "from 0 to 2, got -1"),
    ([0.5], Precomputed(torch.eye(3)), "from 0 to 2, got 0.5"),
    ([math.nan], Precomputed(torch.eye(3)), "from 0 to 2, got nan"),
    ([], Precomputed(torch.eye(3)), r"must be row numbers, .* of \(0,\)"),
    (torch.eye(3), Precomputed(torch.eye(3)), r"must be row numbers, .* of \(3, 3\)"),
    ([True, False, True], Precomputed(torch.eye(3)), "must be row numbers, .* got bool"),
    (["a", "b"], Precomputed(torch.eye(3)), "must be row numbers"),
    ("ab", lambda a, b: 0.5, "itself must be 1, got 0.5"),
    ("ab", lambda a, b: math.nan, "must return finite numbers, got nan"),
    ("ab", lambda a, b: None, "must return finite numbers, got None"),
    ("ab", unequal, r"lie in \[-1, 1\], got 7.0"),
    ([], unequal, "give at least one"),
    *((torch.eye(3), no, "need a kernel such as") for no in (None, 3.0, "gaussian", Gaussian)),
    (["a", ""], NGram(), "row 1 is '', which has no word"),
    (["  \n", "a"], NGram(), r"row 0 is '  \\n', which has no word"),
    ("a cat", NGram(), "list of texts, got one text, 'a cat'"),
    ([], NGram(), "there are no texts"),
    (["a", math.nan], NGram(), "must be texts, got float in row 1"),
    ([b"a"], NGram(), "must be texts, got bytes in row 0"),
    (torch.eye(2), NGram(), "must be texts, got Tensor in row 0"),
]
CALLS = [
    *((lambda matrix=matrix: Precomputed(matrix), message) for matrix, message in MATRICES),
    *((lambda x=x, kernel=kernel: vendi(x, kernel), message) for x, kernel, message in ITEMS),
    *(
        (lambda n=n: NGram(n), r"whole numbers? of at least 1")
        for n in ((), (0,), (1, -2), 2, (1.5,))
    ),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_what_is_no_kernel_or_cannot_be_compared_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
