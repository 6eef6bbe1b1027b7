"""How a model is held: its precision, what `--dtype auto` chooses and why, and parts that wait.

Half precision takes half the memory, and half the time or less where the device computes it itself.
Processors without bfloat16 emulate it, many times slower than float32.
"""

import platform
from collections import Counter
from contextlib import suppress
from functools import cache
from math import inf, prod
from pathlib import Path
from time import perf_counter

import torch
from safetensors import SafetensorError, safe_open

from vendi_guidance.adapter.denoiser import NETWORKS

AUTO = "auto"
DTYPES = (AUTO, "float32", "float16", "bfloat16")

OFFLOADS = ("model", "sequential")
"""How a model's parts can wait on the CPU: whole ones, or their layers (slower, least memory)."""

NATIVE = 0.8
"""A product in bfloat16 takes at most this share of the time of one in float32 where the processor
computes it itself: 0.1 to 0.5 were measured. Emulated, it takes 1.2 to 38 times as long."""

X86 = "x86_64", "amd64"

STORED = {"F16": "float16", "BF16": "bfloat16"}
"""What safetensors call the half precisions."""


def choose(
    asked: str, device: str, folder: Path, variant: str | None = None
) -> tuple[str, str | None]:
    """The precision for a model on a device, by the name of torch's dtype, and what the user should
    know of it, or None.

    Args:
        asked: one of `DTYPES`; "auto" is, on a CPU, bfloat16 where the processor computes it itself
            and else float32; on a GPU the half precision that the model is published in.
        folder: the model's.
        variant: of its files, such as "fp16".
    """
    kind = torch.device(device).type
    if asked != AUTO:
        if asked != "bfloat16" or kind != "cpu" or slowdown() <= 1:
            return asked, None
        return asked, (
            "this processor emulates bfloat16: a product of matrices takes "
            f"{slowdown():.3g} times as long as in float32, which --dtype auto uses"
        )
    half = "bfloat16" if kind == "cpu" else _half_of(folder, variant)
    dtype, why = half, "the half precision of this model"
    if kind == "cpu" and computes_bfloat16():
        why = "which this processor computes itself"
    elif kind == "cpu":
        dtype, why = "float32", "because this processor only emulates bfloat16"
    elif kind == "cuda" and half == "bfloat16" and not torch.cuda.is_bf16_supported(False):
        why = "because this GPU has no bfloat16, and float16 may overflow in this model"
        dtype = "float32"
    return dtype, f"computing in {dtype}, {why}; --dtype changes it"


def computes_bfloat16() -> bool:
    """Whether the CPU computes bfloat16 itself. oneDNN also counts processors of AVX-512 that
    emulate it, which PyTorch tells apart; on processors of other kinds a product is timed."""
    if torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    if asked is not None and platform.machine().lower() in X86:  # a clock errs on a busy machine
        return bool(asked())
    return slowdown() <= NATIVE


@cache
def slowdown() -> float:
    """How many times as long a product of matrices takes on the CPU in bfloat16 as in float32: the
    least of a few, taken in turn."""
    least = {torch.bfloat16: inf, torch.float32: inf}
    for dtype in [*least] * 8:
        x = torch.ones(256, 256, dtype=dtype)
        began = perf_counter()
        x @ x
        least[dtype] = min(least[dtype], perf_counter() - began)
    return least[torch.bfloat16] / least[torch.float32]


def weights_of(variant: str | None) -> str:
    """The pattern of a network's files of weights of a variant, such as "fp16", or of none."""
    end = "[.-][s0]" if variant is None else f".{variant}"
    return f"diffusion_pytorch_model{end}*tensors"


def counts(folder: Path, variant: str | None) -> Counter[str]:
    """How many weights the network in a folder has of each dtype, by safetensors' name of it;
    files that cannot be read are left out: loading says what is wrong."""
    found: Counter[str] = Counter()
    for path in folder.glob(weights_of(variant)):
        with suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118, it is no dictionary
                part = file.get_slice(key)
                found[part.get_dtype()] += prod(part.get_shape())
    return found


def _half_of(folder: Path, variant: str | None) -> str:
    """The half precision of a model: that of its denoiser's files, or else, as such models are
    published, float16 for a U-Net and bfloat16 for a transformer."""
    name = next((name for name in NETWORKS if (folder / name).is_dir()), NETWORKS[0])
    most = counts(folder / name, variant).most_common(1)
    return STORED.get(most[0][0] if most else "", "float16" if name == "unet" else "bfloat16")
