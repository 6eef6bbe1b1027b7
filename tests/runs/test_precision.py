"""What `--dtype auto` chooses."""

import os
import platform
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save

from vendi_guidance.runs import precision


@pytest.fixture
def processor(monkeypatch):
    """Simulate a processor with this `slowdown` of bfloat16."""

    def becomes(slowdown: float, *, known: bool = True, kind: str = "aarch64") -> None:
        monkeypatch.setattr(precision, "slowdown", lambda: slowdown)
        monkeypatch.setattr(precision.platform, "machine", lambda: kind)
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: known)

    return becomes


@pytest.mark.parametrize(
    ("slowdown", "known", "dtype"),
    [(0.3, True, "bfloat16"), (1.2, True, "float32"), (38, False, "float32")],
)
def test_auto_on_a_cpu_is_bfloat16_only_if_supported_natively(
    processor, tmp_path, slowdown, known, dtype
):
    processor(slowdown, known=known)
    chosen, remark = precision.choose("auto", "cpu", tmp_path)
    assert chosen == dtype
    assert remark.startswith(f"computing in {dtype}, ") and "--dtype" in remark


@pytest.mark.parametrize("has_it", [True, False])
def test_on_x86_timings_do_not_decide(processor, monkeypatch, has_it):
    processor(0.3 if not has_it else 38, kind="AMD64")  # as might be measured under load
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_it)
    assert precision.computes_bfloat16() == has_it


def test_without_onednn_the_timing_alone_decides(processor, tmp_path, monkeypatch):
    processor(0.3)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.delattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
    assert precision.choose("auto", "cpu", tmp_path)[0] == "bfloat16"


def test_bfloat16_by_name_warns_with_the_factor_where_it_is_emulated(processor, tmp_path):
    processor(38, known=False)
    dtype, remark = precision.choose("bfloat16", "cpu", tmp_path)
    assert dtype == "bfloat16" and "38 times as long" in remark
    assert precision.choose("float32", "cpu", tmp_path) == ("float32", None)
    processor(0.3)
    assert precision.choose("bfloat16", "cpu", tmp_path) == ("bfloat16", None)


@pytest.mark.parametrize(
    ("part", "stored", "has_bfloat16", "expected"),
    [
        ("unet", torch.float32, True, "float16"),
        ("unet", torch.bfloat16, True, "bfloat16"),
        ("transformer", torch.float16, True, "float16"),
        ("transformer", torch.float32, True, "bfloat16"),
        ("transformer", None, True, "bfloat16"),
        ("transformer", torch.bfloat16, False, "float32"),
        ("unet", torch.float32, False, "float16"),
    ],
)
@pytest.mark.parametrize("variant", [None, "fp16"])
def test_auto_on_a_gpu_is_the_half_precision_of_the_models_files(
    monkeypatch, tmp_path, part, stored, has_bfloat16, expected, variant
):
    """Only files of the variant count."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: has_bfloat16)
    (tmp_path / part).mkdir()
    ends = ("-00001-of-00001", ".fp16") if variant is None else (".fp16", "")
    for end, dtype in zip(ends, (stored, torch.float8_e5m2), strict=True):
        content = b"broken"
        if dtype is not None:
            content = save({"norm": torch.ones(2), "weight": torch.ones(8, 8).to(dtype)})
        (tmp_path / part / f"diffusion_pytorch_model{end}.safetensors").write_bytes(content)
    assert precision.choose("auto", "cuda:0", tmp_path, variant)[0] == expected


@pytest.mark.skipif(platform.machine() != "x86_64", reason="restrains the kernels of x86")
def test_a_processor_without_bfloat16_is_recognised():
    code = "from vendi_guidance.runs.precision import *; print(computes_bfloat16(), slowdown())"
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    computes, slowdown = told.stdout.split()
    assert computes == "False"
    assert float(slowdown) > 1
