"""The precision of a model, and what `--dtype auto` chooses.

Half precision takes half the memory, and at most half the time on devices that support it natively.
Processors without bfloat16 emulate it, up to many times slower than float32.
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
"""What can be offloaded to the CPU: whole parts of a model, or layers (slower, least memory)."""

NATIVE = 0.8
"""Upper limit of `slowdown` on processors that support bfloat16 natively: 0.1 to 0.5 was measured
on these, and 1.2 to 38 where it is emulated."""

X86 = "x86_64", "amd64"

HALVES = {"F16": "float16", "BF16": "bfloat16"}
"""The half precisions by their names in safetensors files."""


def choose(
    dtype: str, device: str, folder: Path, variant: str | None = None
) -> tuple[str, str | None]:
    """The precision for a model on a device, as the name of a torch dtype, and a remark or None.

    Args:
        dtype: one of `DTYPES`. On a CPU, "auto" is bfloat16 if the processor supports it natively
            and float32 otherwise; on a GPU, it is the half precision of the model's files.
        folder: folder of the model.
        variant: variant of its files, such as "fp16".
    """
    kind = torch.device(device).type
    if dtype != AUTO:
        if dtype != "bfloat16" or kind != "cpu" or slowdown() <= 1:
            return dtype, None
        return dtype, (
            "this processor emulates bfloat16: a matrix product takes "
            f"{slowdown():.3g} times as long as in float32, which --dtype auto uses"
        )
    if kind == "cpu" and computes_bfloat16():
        dtype, why = "bfloat16", "which this processor supports natively"
    elif kind == "cpu":
        dtype, why = "float32", "because this processor only emulates bfloat16"
    else:
        dtype, why = _half_of(folder, variant), "the half precision of this model"
        if kind == "cuda" and dtype == "bfloat16" and not torch.cuda.is_bf16_supported(False):
            dtype = "float32"
            why = "because this GPU has no bfloat16, and float16 may overflow in this model"
    return dtype, f"computing in {dtype}, {why}; --dtype changes it"


def computes_bfloat16() -> bool:
    """Whether the CPU supports bfloat16 natively. oneDNN also says so of AVX-512 processors that
    emulate it, so PyTorch is asked on x86, and on other processors a matrix product is timed."""
    if torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    is_native = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    if is_native is not None and platform.machine().lower() in X86:  # timings vary under load
        return bool(is_native())
    return slowdown() <= NATIVE


@cache
def slowdown() -> float:
    """Time of a matrix product on the CPU in bfloat16, as a multiple of that in float32: each is
    the fastest of several, timed in turn."""
    fastest = {torch.bfloat16: inf, torch.float32: inf}
    for dtype in [*fastest] * 8:
        x = torch.ones(256, 256, dtype=dtype)
        began = perf_counter()
        x @ x
        fastest[dtype] = min(fastest[dtype], perf_counter() - began)
    return fastest[torch.bfloat16] / fastest[torch.float32]


def weights_of(variant: str | None) -> str:
    """Glob pattern of a network's weight files, of a variant such as "fp16" or without one."""
    end = "[.-][s0]" if variant is None else f".{variant}"
    return f"diffusion_pytorch_model{end}*tensors"


def counts(folder: Path, variant: str | None) -> Counter[str]:
    """Number of a network's weights of each dtype, by its name in safetensors files. Files that
    cannot be read are left out, as loading the model reports them."""
    found: Counter[str] = Counter()
    for path in folder.glob(weights_of(variant)):
        with suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118, not a dictionary
                part = file.get_slice(key)
                found[part.get_dtype()] += prod(part.get_shape())
    return found


def _half_of(folder: Path, variant: str | None) -> str:
    """The half precision of a model: that of its denoiser's files, or the usual one of published
    models: float16 for a U-Net and bfloat16 for a transformer."""
    name = next((name for name in NETWORKS if (folder / name).is_dir()), NETWORKS[0])
    most = counts(folder / name, variant).most_common(1)
    return HALVES.get(most[0][0] if most else "", "float16" if name == "unet" else "bfloat16")
