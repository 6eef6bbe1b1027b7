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


def test_what_is_no_file_of_tensors_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        SlidingWindow.load(tmp_path / "w")
    (tmp_path / "w").write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        SlidingWindow.load(tmp_path / "w")
    save_file({"latents": LATENTS}, tmp_path / "w")
    with pytest.raises(ValueError, match="its header does not say"):
        SlidingWindow.load(tmp_path / "w")


NO_OBJECTS = ("[]", "3", "null", '"x"', "{", "[" * 100_000, '{"size": ' + "9" * 5000 + "}")
WRONG = {
    "size": ("5", 5.0, True, -1, 10**12, 10**30, None),
    "latent_shape": (3, "ab", [], [-4, -2], [4.0, 2.0], ["4", 2], [[4], 2], {"a": 1}, [True, 8]),
    "dtype": ([], 3, None),
}
CHANGES = [
    ({"format": "something else"}, "its header does not say"),
    ({"version": 99}, "version 99"),
    ({"size": 0}, "its size is 0"),
    ({"dtype": "int8"}, "its dtype is int8"),
    ({"latent_shape": [2, 3]}, "do not fit its header"),
    *(({name: value}, None) for name, values in WRONG.items() for value in values),
    *(({"latent_shape": it}, None) for it in ([10**30, 0], None)),
    *(({"version": 2, "other_shapes": it}, None) for it in (3, [[4, 2]], [None], [[8]], {})),
]


@pytest.mark.parametrize(
    ("header", "reason"),
    [(json.dumps(HEADER | change), reason) for change, reason in CHANGES]
    + [(header, None) for header in NO_OBJECTS],
    ids=lambda value: str(value)[:60],
)
def test_a_header_that_is_wrong_is_named(tmp_path, header, reason):
    save_file({"latents": LATENTS, "prompts": PROMPTS}, tmp_path / "w", {"header": header})
    is_named = r"w is not a|there is no memory for .*w, a window"
    with pytest.raises(ValueError, match=reason or is_named):
        SlidingWindow.load(tmp_path / "w")


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"latents": LATENTS.long()}, None),
        ({"latents": LATENTS.to(torch.complex64)}, None),
        ({"latents": LATENTS[0]}, None),
        ({"latents": LATENTS * torch.nan}, "finite"),
        ({"latents": LATENTS, "prompts": PROMPTS > 0}, None),
        ({"latents": LATENTS, "prompts": PROMPTS[:2]}, r"prompts of shape \(2, 4\)"),
        ({"latents": LATENTS, "prompts": PROMPTS[:, :0]}, None),
        ({"latents": LATENTS, "prompts": PROMPTS * torch.inf}, None),
        ({"prompts": PROMPTS}, "no latents"),
    ],
)
def test_numbers_that_are_no_samples_are_refused(tmp_path, tensors, reason):
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    save_file(tensors, tmp_path / "w", {"header": json.dumps(HEADER)})
    with pytest.raises(ValueError, match=reason):
        SlidingWindow.load(tmp_path / "w")
