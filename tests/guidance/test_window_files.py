"""Window files that are none."""

import json

import pytest
import torch
from safetensors.torch import save_file

from vendi_guidance import SlidingWindow

HEADER = {
    "format": "vendi-guidance window",
    "version": 3,
    "size": 5,
    "dtype": "float32",
    "shapes": [[4, 2]],
}
LATENTS, PROMPTS = torch.randn(3, 8), torch.randn(3, 4)
SAMPLES = {"latents_0": LATENTS, "prompts_0": PROMPTS}


def test_the_file_that_is_damaged_below_is_read(tmp_path):
    save_file(SAMPLES, tmp_path / "w", {"header": json.dumps(HEADER)})
    assert len(SlidingWindow.load(tmp_path / "w")) == 3


def test_what_is_no_file_of_tensors_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        SlidingWindow.load(tmp_path / "w")
    (tmp_path / "w").write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match="not a readable safetensors file"):
        SlidingWindow.load(tmp_path / "w")
    save_file({"latents_0": LATENTS}, tmp_path / "w")
    with pytest.raises(ValueError, match="its header does not say"):
        SlidingWindow.load(tmp_path / "w")


NO_OBJECTS = ("[]", "3", "null", '"x"', "{", "[" * 100_000, '{"size": ' + "9" * 5000 + "}")
WRONG = {
    "size": ("5", 5.0, True, -1, 10**12, 10**30, None),
    "shapes": (3, {}, None, [[4, 2], [4, 2]], [None], [[4, 2], [8]]),
    "dtype": ([], 3, None),
}
SHAPES = 3, "ab", [], [-4, -2], [4.0, 2.0], ["4", 2], [[4], 2], {"a": 1}, [True, 8], [10**30, 0]
CHANGES = [
    ({"format": "something else"}, "its header does not say"),
    *(({"version": it}, f"version {it}, this is 3") for it in (1, 2, 99, None)),
    ({"size": 0}, "its size is 0"),
    ({"dtype": "int8"}, "its dtype is int8"),
    ({"shapes": [[2, 3]]}, "do not fit its header"),
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
    save_file(SAMPLES, tmp_path / "w", {"header": header})
    is_named = r"w is not a|there is no memory for .*w, a window"
    with pytest.raises(ValueError, match=reason or is_named):
        SlidingWindow.load(tmp_path / "w")


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"latents_0": LATENTS.long()}, None),
        ({"latents_0": LATENTS.to(torch.complex64)}, None),
        ({"latents_0": LATENTS[0]}, None),
        ({"latents_0": LATENTS * torch.nan}, "finite"),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS > 0}, None),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS[:2]}, r"prompts of shape \(2, 4\)"),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS[:, :0]}, None),
        ({"latents_0": LATENTS, "prompts_0": PROMPTS * torch.inf}, None),
        ({"prompts_0": PROMPTS}, "latents of shape .* do not fit"),
    ],
)
def test_numbers_that_are_no_samples_are_refused(tmp_path, tensors, reason):
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    save_file(tensors, tmp_path / "w", {"header": json.dumps(HEADER)})
    with pytest.raises(ValueError, match=reason):
        SlidingWindow.load(tmp_path / "w")
