"""Window files that are none."""

import json

import pytest
import torch
from safetensors.torch import save_file

from vendi_guidance import SlidingWindow

HEADER = {
    "format": "vendi-guidance window",
    "version": 1,
    "size": 5,
    "latent_shape": [4, 2],
    "dtype": "float32",
}
LATENTS, PROMPTS = torch.randn(3, 8), torch.randn(3, 4)


def test_the_file_that_is_damaged_below_is_read(tmp_path):
    save_file(
        {"latents": LATENTS, "prompts": PROMPTS}, tmp_path / "w", {"header": json.dumps(HEADER)}
    )
    assert len(SlidingWindow.load(tmp_path / "w")) == 3


@pytest.mark.parametrize(
    "change",
    [
        *({"size": size} for size in ("5", 5.0, True, 0, -1, 10**12, 10**30, None)),
        *({"latent_shape": shape} for shape in (3, "ab", [], [-4, -2], [4.0, 2.0], ["4", 2])),
        *({"latent_shape": shape} for shape in ([[4], 2], {"a": 1}, [10**30, 0], [True, 8], None)),
        *({"version": 2, "other_shapes": other} for other in (3, [[4, 2]], [None], [[8]], {})),
        *({"dtype": dtype} for dtype in ([], 3, "int8", None)),
    ],
    ids=str,
)
def test_a_header_that_is_wrong_is_named(tmp_path, change):
    header = json.dumps(HEADER | change)
    save_file({"latents": LATENTS, "prompts": PROMPTS}, tmp_path / "w", {"header": header})
    with pytest.raises(ValueError, match=r"w is not a window|there is no memory for .*w, a window"):
        SlidingWindow.load(tmp_path / "w")


@pytest.mark.parametrize(
    "header", ["[]", "3", "null", '"x"', "{", "[" * 100_000, '{"size": ' + "9" * 5000 + "}"]
)
def test_a_header_that_is_no_object_is_named(tmp_path, header):
    save_file({"latents": LATENTS}, tmp_path / "w", {"header": header})
    with pytest.raises(ValueError, match=r"w is not a"):
        SlidingWindow.load(tmp_path / "w")


@pytest.mark.parametrize(
    "tensors",
    [
        {"latents": LATENTS.long()},
        {"latents": LATENTS.to(torch.complex64)},
        {"latents": LATENTS[0]},
        {"latents": LATENTS * torch.nan},
        {"latents": LATENTS, "prompts": PROMPTS > 0},
        {"latents": LATENTS, "prompts": PROMPTS[:2]},
        {"latents": LATENTS, "prompts": PROMPTS[:, :0]},
        {"latents": LATENTS, "prompts": PROMPTS * torch.inf},
        {"prompts": PROMPTS},
    ],
)
def test_numbers_that_are_no_samples_are_refused(tmp_path, tensors):
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    save_file(tensors, tmp_path / "w", {"header": json.dumps(HEADER)})
    with pytest.raises(ValueError):
        SlidingWindow.load(tmp_path / "w")
