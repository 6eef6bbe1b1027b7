"""Looks, fidelity and in-batch similarity on labels and features made by hand; CLIPScore, KID and
FID against torchmetrics."""

import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings, strategies as st
from torchmetrics.functional.multimodal import clip_score as torchmetrics_clip_score
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from tests.helpers.largest_tensor import LargestTensor
from vendi_guidance.features.probe import Looks
from vendi_guidance.scores.references import (
    asked_concepts,
    clip_score,
    frechet_distance,
    in_batch_similarity,
    kernel_distance,
    looks_by_prompt,
    prompt_fidelity,
)

small = settings(deadline=None, max_examples=40)
distances = pytest.mark.parametrize("distance", [kernel_distance, frechet_distance])

PROMPTS = ["ear"] * 5 + ["nose"] * 3
SEEN = Looks(
    concepts=["ear", "ear", "ear", "nose", "ear", "nose", "ear", "ear"],
    vendors=["noto", "noto", "fluent", "fluent", "noto", "noto", "noto", "fluent"],
    tones=["dark", "dark", "dark", "light", "light", "dark", "dark", "dark"],
)


def test_the_asked_concept_is_what_stands_before_the_first_comma():
    prompts = ["ear", "Ear, dark skin tone", " NOSE ,noto style", "an ear", "", "eye, ear"]
    assert asked_concepts(prompts, ["ear", "Nose"]) == ["ear", "ear", "Nose", None, None, None]


def test_a_look_counts_once_and_only_on_a_picture_of_what_was_asked():
    # ear: (noto, dark) twice, (fluent, dark), (noto, light); the nose among them does not count
    assert looks_by_prompt(PROMPTS, PROMPTS, SEEN) == {"ear": 3, "nose": 1}


def test_a_prompt_without_any_right_picture_has_no_looks():
    seen = Looks(["ear"], ["noto"], ["dark"])
    assert looks_by_prompt(["nose"], ["nose"], seen) == {"nose": 0}


def test_prompts_that_differ_in_what_they_leave_open_are_counted_apart():
    prompts = ["ear", "ear, dark skin tone", "ear"]
    seen = Looks(["ear"] * 3, ["noto", "noto", "fluent"], ["dark"] * 3)
    assert looks_by_prompt(prompts, ["ear"] * 3, seen) == {"ear": 2, "ear, dark skin tone": 1}


def test_fidelity_is_the_share_of_right_pictures():
    assert prompt_fidelity(PROMPTS, SEEN) == pytest.approx(5 / 8)


def test_pictures_of_unknown_concepts_are_not_judged():
    asked = ["ear", None, "nose"]
    seen = Looks(["ear", "ear", "ear"], ["noto"] * 3, ["dark"] * 3)
    assert prompt_fidelity(asked, seen) == pytest.approx(1 / 2)
    assert looks_by_prompt(["ear", "castle", "nose"], asked, seen) == {"ear": 1, "nose": 0}
    assert prompt_fidelity([None, None, None], seen) is None


def test_in_batch_similarity_is_the_mean_cosine_of_pairs_with_the_same_prompt():
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    pairs = [
        torch.cosine_similarity(x[i], x[j], dim=0)
        for i, j in itertools.combinations(range(8), 2)
        if PROMPTS[i] == PROMPTS[j]
    ]
    assert len(pairs) == 13
    expected = torch.stack(pairs).mean().item()
    assert in_batch_similarity(x, PROMPTS) == pytest.approx(expected, rel=1e-5)


def test_in_batch_similarity_of_equal_pictures_is_one_and_knows_its_limits():
    assert in_batch_similarity(torch.ones(3, 2), ["a", "a", "a"]) == pytest.approx(1)
    assert in_batch_similarity(torch.tensor([[1.0, 0], [-2, 0]]), ["a", "a"]) == pytest.approx(-1)
    assert in_batch_similarity(torch.ones(2, 2), ["a", "b"]) is None


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="got 7 and 8 items"):
        prompt_fidelity(PROMPTS[1:], SEEN)
    with pytest.raises(ValueError, match="got 8 and 7 items"):
        looks_by_prompt(PROMPTS, PROMPTS[1:], SEEN)
    with pytest.raises(ValueError, match="got 1 and 2 items"):
        in_batch_similarity(torch.ones(2, 2), ["a"])


def normal(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@st.composite
def sets(draw):
    """(x, reference) in float64, sometimes with duplicates."""
    d, n, m = draw(st.integers(1, 8)), draw(st.integers(2, 12)), draw(st.integers(2, 12))
    r = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = r.normal(size=(draw(st.sampled_from([3, 50])), d))
    x, reference = rows[r.integers(len(rows), size=n)], rows[r.integers(len(rows), size=m)] + 0.5
    return torch.from_numpy(x), torch.from_numpy(reference)


# CLIPScore


class FeaturesAsPictures:
    """A CLIP and its processor in one: pictures are their features, texts the rows of a matrix."""

    def __init__(self, prompt_features):
        self.prompt_features = prompt_features

    def to(self, device):
        return self

    def __call__(self, text=None, images=None, **_):
        if images is not None:
            return {"pixel_values": torch.stack(images).flatten(1)}
        rows = torch.tensor([int(row) for row in text])
        return {"input_ids": rows, "attention_mask": torch.ones_like(rows)[:, None]}

    def get_image_features(self, pixels):
        return pixels

    def get_text_features(self, rows, mask):
        return self.prompt_features[rows]

    class config:  # noqa: N801
        pass


def test_the_clip_score_is_that_of_torchmetrics_where_no_cosine_is_negative():
    images, prompts = normal(30, 8, 0).abs(), normal(30, 8, 1).abs()
    model = FeaturesAsPictures(prompts)
    texts = [str(row) for row in range(30)]
    expected = torchmetrics_clip_score(images[:, None, None], texts, lambda: (model, model))
    assert clip_score(images, prompts) == pytest.approx(expected.item(), rel=1e-12)


def test_the_clip_score_is_the_mean_of_hundredfold_cosines_none_below_zero():
    images = torch.tensor([[3.0, 0], [1, 1], [0, 2]])
    prompts = torch.tensor([[2.0, 0], [1, 0], [0, -1]])
    assert clip_score(images, prompts) == pytest.approx(100 * (1 + math.sqrt(0.5) + 0) / 3)
    assert clip_score(images, images) == pytest.approx(100)
    assert clip_score(images, -images) == 0


@small
@given(sets(), st.floats(0.01, 100))
def test_the_clip_score_is_a_percentage_and_does_not_see_lengths(case, scale):
    images, prompts = case
    n = min(len(images), len(prompts))
    score = clip_score(images[:n], prompts[:n])
    assert 0 <= score <= 100
    assert clip_score(images, images) <= 100
    assert clip_score(scale * images[:n].numpy(), prompts[:n]) == pytest.approx(score)


def test_what_the_clip_score_refuses():
    with pytest.raises(ValueError, match="got 3 and 2 items"):
        clip_score(torch.ones(3, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="agree in d, got 2 and 4"):
        clip_score(torch.ones(3, 2), torch.ones(3, 4))
    with pytest.raises(ValueError, match="row 1 is a zero vector"):
        clip_score(torch.ones(3, 2), torch.tensor([[1.0, 0], [0, 0], [1, 1]]))


# KID and FID on features


def fill(metric, x, reference):
    metric.update(x, real=False)
    metric.update(reference, real=True)
    return metric.compute()


def features_of_width(d: int) -> torch.nn.Identity:
    """The encoder of torchmetrics for what is features already."""
    encoder = torch.nn.Identity()
    encoder.num_features = d
    return encoder


@pytest.mark.parametrize(("n", "d"), [(20, 3), (600, 5), (1100, 16)])
def test_the_kernel_distance_is_that_of_torchmetrics_on_all_pictures_at_once(n, d):
    x, reference = 1.1 * normal(n, d, 0) + 0.2, normal(n, d, 1)
    metric = KernelInceptionDistance(features_of_width(d), subsets=1, subset_size=n)
    expected = fill(metric, x, reference)[0].item()
    assert kernel_distance(x, reference) == pytest.approx(expected, rel=1e-9)


def test_the_kernel_distance_is_what_subsets_of_torchmetrics_have_on_average():
    torch.manual_seed(0)  # torchmetrics draws its subsets from here
    x, reference = 1.2 * normal(200, 4, 0), normal(200, 4, 1)
    metric = KernelInceptionDistance(features_of_width(4), subsets=400, subset_size=50)
    mean, deviation = fill(metric, x, reference)
    assert abs(kernel_distance(x, reference) - mean) < 4 * deviation / 400**0.5


def test_the_kernel_distance_of_unequal_numbers_is_that_of_the_definition():
    x, reference = normal(7, 3, 0), normal(4, 3, 1) + 0.5

    def mean(pairs):
        return np.mean([(np.dot(a, b) / 3 + 1) ** 3 for a, b in pairs])

    rows, real = x.tolist(), reference.tolist()
    within = mean(itertools.permutations(rows, 2)) + mean(itertools.permutations(real, 2))
    expected = within - 2 * mean(itertools.product(rows, real))
    assert kernel_distance(x, reference) == pytest.approx(expected, rel=1e-12)


def test_the_kernel_distance_of_one_distribution_is_zero_on_average():
    several = [kernel_distance(normal(6, 3, i), normal(4, 3, 5000 + i)) for i in range(2000)]
    assert abs(np.mean(several)) < 4 * np.std(several) / 2000**0.5
    # what the same would be with each picture's pair with itself, a biased estimate
    own = np.mean([((normal(6, 3, i).square().sum(1) / 3 + 1) ** 3).mean() for i in range(2000)])
    assert own / 6 > 10 * np.std(several) / 2000**0.5


@distances
def test_both_distances_grow_with_a_shift(distance):
    x, reference = normal(1000, 6, 0), normal(1000, 6, 1)
    shifted = [distance(x + shift, reference) for shift in (0, 0.2, 0.5, 1, 3)]
    assert shifted == sorted(shifted)
    assert shifted[0] < 0.1 * shifted[2]


@distances
@small
@given(sets(), st.integers(0, 1000))
def test_order_rotation_and_roles_do_not_matter_to_a_distance(distance, case, seed):
    x, reference = case
    expected = pytest.approx(distance(x, reference), rel=1e-9, abs=1e-9)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    assert distance(x[order], reference) == expected
    rotation = torch.linalg.qr(normal(x.shape[1], x.shape[1], seed)).Q
    assert distance(x @ rotation, reference @ rotation) == expected
    assert distance(reference, x) == expected


@pytest.mark.parametrize(("n", "m", "d"), [(50, 40, 3), (5000, 4200, 8), (300, 200, 40)])
def test_the_frechet_distance_is_that_of_torchmetrics_and_of_scipy(n, m, d):
    x, reference = normal(n, d, 0) @ normal(d, d, 1) + 0.3, normal(m, d, 2)
    metric = FrechetInceptionDistance(features_of_width(d))
    expected = fill(metric, x, reference).item()
    assert frechet_distance(x, reference) == pytest.approx(expected, rel=1e-9)
    c, c_r = np.cov(x.numpy().T), np.cov(reference.numpy().T)
    shift = (x.mean(dim=0) - reference.mean(dim=0)).square().sum().item()
    expected = shift + np.trace(c + c_r - 2 * scipy.linalg.sqrtm(c @ c_r).real)
    assert frechet_distance(x, reference) == pytest.approx(expected, rel=1e-9)


def test_the_frechet_distance_of_numbers_is_that_of_their_means_and_deviations():
    x, reference = 2 * normal(90, 1, 0) + 5, normal(70, 1, 1)
    moments = (x.mean() - reference.mean()) ** 2 + (x.std() - reference.std()) ** 2
    assert frechet_distance(x, reference) == pytest.approx(moments.item(), rel=1e-12)


@small
@given(sets())
def test_the_frechet_distance_of_a_set_moved_away_is_the_squared_move(case):
    x, _ = case
    assert 0 <= frechet_distance(x, x) < 1e-12
    move = torch.arange(1.0, x.shape[1] + 1)
    squared = move.square().sum().item()
    assert frechet_distance(x + move, x) == pytest.approx(squared, rel=1e-12)


def test_the_frechet_distance_keeps_its_precision_with_more_features_than_pictures():
    x, reference = 2 * normal(30, 3, 0), normal(40, 3, 1)
    wider = torch.linalg.qr(normal(300, 3, 2)).Q.T  # three dimensions amid three hundred
    expected = frechet_distance(x, reference)
    assert frechet_distance(x @ wider, reference @ wider) == pytest.approx(expected, rel=1e-12)


@distances
def test_features_far_from_the_origin_lose_no_more_than_their_own_precision(distance):
    x, reference = normal(200, 4, 0).float() + 1000, normal(200, 4, 1).float() + 1000
    expected = distance(x.double(), reference.double())
    assert distance(x, reference) == expected
    if distance is frechet_distance:
        moved = distance(x.double() - 1000, reference.double() - 1000)
        assert expected == pytest.approx(moved, rel=1e-9)


@distances
@pytest.mark.parametrize("kind", [torch.Tensor.half, torch.Tensor.int, torch.Tensor.numpy])
def test_any_kind_of_number_has_the_distance_of_its_values(distance, kind):
    x, reference = (normal(20, 3, 0) * 9).round(), (normal(25, 3, 1) * 9).round()
    found = distance(kind(x), reference)
    assert type(found) is float
    assert found == pytest.approx(distance(x, reference), rel=1e-12)


@distances
def test_no_tensor_grows_with_the_square_of_the_pictures(distance):
    x, reference = torch.randn(5000, 2), torch.randn(4000, 2)
    with LargestTensor() as largest:
        distance(x, reference)
    assert largest.numel <= 1024**2


@distances
def test_a_distance_refuses_single_pictures_and_malformed_features(distance):
    with pytest.raises(ValueError, match=r"got 1 generated picture: .* at least 2"):
        distance(torch.ones(1, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="got 1 reference picture"):
        distance(torch.ones(3, 2), torch.ones(1, 2))
    with pytest.raises(ValueError, match="agree in d, got 2 and 3"):
        distance(torch.ones(4, 2), torch.ones(4, 3))
    with pytest.raises(ValueError, match="NaN or infinity, first in row 2"):
        distance(torch.ones(4, 2), torch.tensor([[1.0], [2.0], [math.nan]]).expand(3, 2))
