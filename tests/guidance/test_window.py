"""The sliding window: what it holds and what it caches, and files that are none."""

import json

import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import save_file

from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian

LATENT, PROMPT = Gaussian(0.8), Gaussian(0.3)


def samples(count, seed=0):
    r = torch.Generator().manual_seed(seed)
    return 5 * torch.randn(count, 2, 3, 3, generator=r), torch.randn(count, 4, generator=r)


@settings(max_examples=50, deadline=None)
@given(
    size=st.integers(1, 12) | st.sampled_from([70, 150, 300]),
    batches=st.lists(st.integers(1, 15) | st.just(200), max_size=8),
)
def test_holds_the_last_samples_and_their_kernels_as_if_computed_anew(size, batches):
    window = SlidingWindow(size)
    latents, prompts = samples(sum(batches) or 1)
    done = 0
    for count in batches:
        window.append(latents[done : done + count], prompts[done : done + count])
        done += count
        last = slice(max(0, done - size), done)
        f, t = unit_rows(latents[last].flatten(1)), unit_rows(prompts[last])
        assert len(window) == len(f)
        # kernels do not depend on the order of samples, so the window may keep its own
        gram_z, gram_t = LATENT.gram(f), PROMPT.gram(t)
        kept = window.of_shape((2, 3, 3))
        own_z, own_t = kept.latent_gram(LATENT), kept.prompt_gram(PROMPT)
        assert torch.allclose(own_z.sum(1).sort().values, gram_z.sum(1).sort().values, atol=1e-5)
        norm = (own_z * own_t).square().sum().item()
        assert norm == pytest.approx((gram_z * gram_t).square().sum().item(), rel=1e-5)
        assert own_t.square().sum().item() == pytest.approx(gram_t.square().sum().item(), rel=1e-5)
        assert torch.equal(own_z.diagonal(), torch.ones(len(f)))
        assert torch.allclose(own_t, own_t.T, atol=1e-6)


@pytest.mark.parametrize("count", [0, 2, 5, 13])
def test_a_saved_window_comes_back_and_forgets_in_the_same_order(tmp_path, count):
    window = SlidingWindow(5)
    if count:
        window.append(*samples(count))
    window.save(tmp_path / "window.safetensors")
    loaded = SlidingWindow.load(tmp_path / "window.safetensors")
    assert len(loaded) == len(window) and loaded.size == 5
    assert list(tmp_path.iterdir()) == [tmp_path / "window.safetensors"]
    for each in (window, loaded):
        each.append(*samples(3, seed=1))
    own, theirs = (w.features[w.features[:, 0].argsort()] for w in (window, loaded))
    assert torch.allclose(own, theirs, atol=1e-6)


def test_samples_of_each_shape_are_kept_apart_and_saved_together(tmp_path):
    path, window, alone = tmp_path / "window", SlidingWindow(5), SlidingWindow(5)
    window.append(*samples(3))
    window.append(torch.randn(7, 4))  # another shape, without prompts
    window.append(*samples(4, seed=1))
    for each in (samples(3), samples(4, seed=1)):
        alone.append(*each)
    assert window.shapes == [(2, 3, 3), (4,)]
    assert torch.equal(window.features, alone.features) and len(window.of_shape((4,))) == 5
    assert len(window.of_shape((9,))) == 0 and torch.equal(window.prompts, alone.prompts)
    with pytest.raises(KeyboardInterrupt), window.resized(2):
        assert len(window.of_shape((4,))) == 2
        raise KeyboardInterrupt
    window.save(path)
    loaded = SlidingWindow.load(path)
    assert loaded.shapes == window.shapes
    for shape in window.shapes:
        pair = (each.of_shape(shape).features.sort(0).values for each in (loaded, window))
        assert torch.allclose(*pair, atol=1e-6)
    with pytest.raises(ValueError, match="size, 5 of each shape, is beyond 9"):
        SlidingWindow.load(path, largest=9)
    loaded.clear()
    assert loaded.shapes == []


def test_each_shape_has_its_own_kernels():
    window, counts = SlidingWindow(9), (2, 3, 4)
    for count in counts:
        window.append(torch.randn(count, count), torch.randn(count, 5))
    for count in counts:
        assert len(window.of_shape((count,)).prompt_gram(PROMPT)) == count


def test_resizing_keeps_the_newest():
    window = SlidingWindow(6)
    latents, prompts = samples(8)
    window.append(latents, prompts)
    window.resize(3)
    assert torch.allclose(window.features, unit_rows(latents[-3:].flatten(1)), atol=1e-6)
    window.resize(10)
    window.append(*samples(4, seed=2))
    assert len(window) == 7


@pytest.mark.parametrize("size", [2, 4, 9])
def test_what_left_a_window_comes_back_if_the_block_of_the_other_size_fails(size):
    window = SlidingWindow(4)
    window.append(*samples(6))
    before = window.features.clone()
    with pytest.raises(KeyboardInterrupt), window.resized(size):
        assert (window.size, len(window)) == (size, min(size, 4))
        raise KeyboardInterrupt
    assert window.size == 4 and torch.equal(window.features, before)
    window.append(*samples(1, seed=1))
    assert len(window) == 4 and (window.features == before).all(dim=1).sum() == 3


@pytest.mark.parametrize(
    ("latents", "prompts", "reason"),
    [
        (torch.ones(1, 2, 3, 3), torch.ones(1, 5), "width 4, got 5"),
        (torch.ones(1, 2, 3, 3), None, "with prompts, got one without"),
        (torch.ones(2, 2, 3, 3), torch.ones(1, 4), "2 latents but 1 prompt$"),
        (torch.full((1, 2, 3, 3), torch.nan), torch.ones(1, 4), "finite"),
    ],
)
def test_a_refused_sample_leaves_the_window_as_it_was(latents, prompts, reason):
    window = SlidingWindow(5)
    window.append(*samples(3))
    before = window.features.clone()
    with pytest.raises(ValueError, match=reason):
        window.append(latents, prompts)
    assert torch.equal(window.features, before)


HEADER = {"format": "vendi-guidance window", "version": 3, "size": 5}
HEADER |= {"dtype": "float32", "shapes": [[4, 2]]}
LATENTS, PROMPTS = torch.randn(3, 8), torch.randn(3, 4)
SAMPLES = {"latents_0": LATENTS, "prompts_0": PROMPTS}


def test_what_is_no_file_of_tensors_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        SlidingWindow.load(tmp_path / "w")
    save_file(SAMPLES, tmp_path / "w", {"header": json.dumps(HEADER)})
    assert len(SlidingWindow.load(tmp_path / "w")) == 3  # the file that is damaged below
    (tmp_path / "w").write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        SlidingWindow.load(tmp_path / "w")


NO_OBJECTS = (None, "[]", "3", "null", '"x"', "{", "[" * 100_000, '{"size": ' + "9" * 5000 + "}")
WRONG = {
    "size": ("5", 5.0, True, -1, 10**12, 10**30, None),
    "shapes": (3, None, [[4, 2], [4, 2]], [None], [[4, 2], [8]]),
    "dtype": ([], 3, None),
}
SHAPES = 3, "ab", [], [-4, -2], [4.0, 2.0], ["4", 2], [[4], 2], {"a": 1}, [10**30, 0]
CHANGES = [
    ({"format": "something else"}, "its format is"),
    *(({"version": it}, f"version {it} of its layout") for it in (1, 2, 99, None)),
    ({"size": 0}, "at least 1, got 0"),
    ({"dtype": "int8"}, "floating-point numbers, got torch.int8"),
    ({"shapes": [[2, 3]]}, "multiply up to"),
    *(({name: value}, None) for name, values in WRONG.items() for value in values),
    *(({"shapes": [it]}, None) for it in SHAPES),
]


@pytest.mark.parametrize(
    ("header", "reason"),
    [(json.dumps(HEADER | change), reason) for change, reason in CHANGES]
    + [(header, None) for header in NO_OBJECTS],
    ids=lambda value: str(value)[:60],
)
def test_a_header_that_is_wrong_is_named(tmp_path, header, reason):
    save_file(SAMPLES, tmp_path / "w", header and {"header": header})
    with pytest.raises(ValueError, match=reason or "w is not a"):
        SlidingWindow.load(tmp_path / "w")


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"latents_0": LATENTS.long()}, None),
        ({"latents_0": LATENTS.to(torch.complex64)}, None),
        ({"latents_0": LATENTS[0]}, None),
        ({"latents_0": LATENTS * torch.nan}, "finite"),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS > 0}, None),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS[:2]}, "3 latents but 2 prompts"),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS[:, :0]}, None),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS * torch.inf}, None),
        ({"prompts_0": PROMPTS}, "latents_0"),
    ],
)
def test_numbers_that_are_no_samples_are_refused(tmp_path, tensors, reason):
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    save_file(tensors, tmp_path / "w", {"header": json.dumps(HEADER)})
    with pytest.raises(ValueError, match=reason):
        SlidingWindow.load(tmp_path / "w")
