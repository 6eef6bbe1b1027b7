"""Checkpoints, and the window that is rebuilt from them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.checkpoints import Checkpoint, Checkpoints, Progress, RunWindow

SIZE = 7
NOTHING = Checkpoint(Progress(0, 0, 4))


def grow(
    folder: Path,
    sizes: list[int],
    window: RunWindow,
    with_prompts: bool = True,
    opening: Checkpoint = NOTHING,
) -> Progress:
    """Add batches of these sizes to a window, and write a checkpoint for each."""
    generator = torch.Generator().manual_seed(len(sizes))
    checkpoints, progress = Checkpoints(folder, window.size), opening.progress
    checkpoints.add(opening)
    for size in sizes:
        latents = torch.randn(size, 4, 3, 3, generator=generator)
        prompts = torch.randn(size, 5, generator=generator) if with_prompts else None
        before = window.entered
        if size:
            window.append(latents, prompts)
        progress = replace(
            progress,
            done=progress.done + 4,
            metadata_bytes=progress.metadata_bytes + 100,
            entered_before=before,
            entered=window.entered,
        )
        stays = latents[-window.size :], None if prompts is None else prompts[-window.size :]
        checkpoints.add(Checkpoint(progress, *stays) if size else Checkpoint(progress))
    return progress


def assert_equal(one: RunWindow, other: RunWindow) -> None:
    """Two windows are equal bit by bit, slot by slot."""
    assert one.entered == other.entered
    for name in ("features", "inner_products", "prompts"):
        kept, made_again = getattr(one, name), getattr(other, name)
        assert made_again is None if kept is None else torch.equal(kept, made_again)
    if one.prompts is not None:
        assert torch.equal(*(window.prompt_gram(Gaussian(0.3)) for window in (one, other)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [3],
        [4, 4, 4, 4, 4],
        [1] * 10,
        [4, 0, 4, 0, 0, 3, 0],  # a batch may have no sample to remember
        [20, 3],
        [3, 20],
        [2, 5, 1, 4, 4, 3],
    ],
)
def test_a_window_is_rebuilt_bit_by_bit(tmp_path, sizes, dtype):
    for end in range(len(sizes) + 1):
        folder = tmp_path / str(end)
        window = RunWindow(SIZE, dtype=dtype)
        has_prompts = dtype != torch.float64
        progress = grow(folder, sizes[:end], window, has_prompts)
        again = RunWindow(SIZE, dtype=dtype)
        checkpoints = Checkpoints(folder, SIZE)
        checkpoints.restore(again, "cpu")
        assert checkpoints.last() == progress
        assert_equal(again, window)
        more = torch.randn(3, 4, 3, 3), torch.randn(3, 5) if has_prompts else None
        window.append(*more)
        again.append(*more)
        assert_equal(again, window)


def test_checkpoints_are_kept_as_long_as_their_samples_are_in_the_window(tmp_path):
    none = [0, 0, 0]  # samples with NaN are not remembered
    for name, sizes, window in (("one", [4] * 9, 7), ("none", none, 7), ("large", [4] * 40, 100)):
        (tmp_path / name).mkdir()
        grow(tmp_path / name, sizes, RunWindow(window))
    left = {folder.name: [*folder.iterdir()] for folder in tmp_path.iterdir()}
    kept = {f"{it:012d}-{it:012d}.safetensors" for it in (32, 36)}
    assert {path.name for path in left["one"]} == kept
    assert len(left["large"]) == 25  # their size does not depend on the window's
    assert max(path.stat().st_size for path in left["large"]) < 4 * (36 + 5) * 4 + 1000
    assert [path.name for path in left["none"]] == ["000000000012-000000000000.safetensors"]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (["000000000008-000000000004"], "does not fit those before it: 2 samples have entered"),
        ([f"{4 * i:012d}-{2 * i:012d}" for i in (1, 2)], "checkpoints are missing"),
    ],
)
def test_missing_checkpoints_are_noticed(tmp_path, missing, words):
    grow(tmp_path, [2, 2, 2], RunWindow(SIZE))
    for name in missing:
        (tmp_path / f"{name}.safetensors").unlink()
    with pytest.raises(ValueError, match=words):
        Checkpoints(tmp_path, SIZE).restore(RunWindow(SIZE), "cpu")


KIND = '{"format": "vendi-guidance checkpoint", "version": 1'


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"x" * 100, b"\xff" * 8, b"\x10\0\0\0\0\0\0\0" + b"[" * 16),
        *(None, "[]", "{}", "[" * 100_000, KIND + "}", KIND + ', "done": "4"}'),
        '{"format": "vendi-guidance window", "version": 1}',
    ],
)
def test_a_damaged_file_or_one_of_another_format_is_named(tmp_path, content):
    path = tmp_path / "000000000004-000000000002.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save_file({"latents": torch.ones(2, 3)}, path, content and {"header": content})
    with pytest.raises(ValueError, match=r"000000000002\.safetensors is not a"):
        Checkpoints(tmp_path, SIZE).last()


@pytest.mark.parametrize(
    "latents", [torch.ones(2, dtype=torch.int64), torch.ones(3), torch.full((2, 4), torch.nan)]
)
def test_tensors_that_are_no_latents_are_refused(tmp_path, latents):
    progress = Progress(4, 10, 4, 0, 2)
    path = tmp_path / "000000000004-000000000002.safetensors"
    Checkpoints(tmp_path, SIZE).add(Checkpoint(progress, torch.ones(2, 3)))
    with safe_open(path, "pt") as stored:
        metadata = stored.metadata()
    save_file({"latents": latents}, path, metadata)
    with pytest.raises(ValueError, match=r"000000000002\.safetensors (has a|does not fit)"):
        Checkpoints(tmp_path, SIZE).restore(RunWindow(SIZE), "cpu")


@pytest.mark.parametrize("knows_size", [False, True])
@pytest.mark.parametrize("batches", [[2], [2, 3, 1], [2, 3, 3, 3, 3]])
def test_a_resumed_run_keeps_samples_of_other_image_sizes(tmp_path, batches, knows_size):
    samples = torch.randn(4, 4, 3, 3), torch.randn(4, 5)
    opening = Checkpoint(Progress(0, 0, 4, entered=3), torch.randn(3, 4, 5, 5), torch.randn(3, 5))
    window, again = RunWindow(SIZE), RunWindow(SIZE)
    for each in (window, again) if knows_size else ():
        known = SlidingWindow(SIZE)
        known.append(*samples)
        each.adopt(known)
    window.enter_again(opening, "cpu")
    grow(tmp_path, batches, window, opening=opening)
    again.opening = opening
    Checkpoints(tmp_path, SIZE).restore(again, "cpu")
    again.keep(opening)
    assert_equal(again, window)
    assert set(again.shapes) == set(window.shapes) == {(4, 3, 3), (4, 5, 5)}
    assert again.entered == window.entered == 3 + sum(batches)
    for number in range(max(3, window.entered - SIZE), window.entered):
        assert torch.equal(again.sample(number)[0], window.sample(number)[0])
    pair = (each.of_shape((4, 5, 5)).features for each in (window, again))
    assert torch.allclose(*pair, atol=1e-6)
