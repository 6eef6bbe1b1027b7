"""Models, LoRAs and precision: what is found, loaded and refused."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import diffusers
import pytest
import torch
from diffusers import ModelMixin
from diffusers.models.autoencoders.vae import AutoencoderMixin
from safetensors.torch import load_file, save
from transformers import PreTrainedModel

from tests.helpers import tiny_folders
from tests.helpers.damage import drop_weight, write_bomb
from tests.helpers.runs import put_in_cache
from vendi_guidance import VendiGuidedPixArtSigmaPipeline, VendiGuidedSDXLPipeline
from vendi_guidance.runs import loading
from vendi_guidance.runs.loading import Model
from vendi_guidance.runs.models import LORA_WEIGHTS, check_model, find_lora, find_model, fingerprint
from vendi_guidance.runs.plan import OFFLOADS, RunOptions, Sampling


@pytest.fixture
def model(tiny_sdxl_folder, tmp_path) -> Path:
    return shutil.copytree(tiny_sdxl_folder, tmp_path / "model")


@pytest.fixture
def lora(tiny_lora_folder, tmp_path) -> Path:
    return shutil.copytree(tiny_lora_folder, tmp_path / "lora")


@pytest.fixture
def trace(tmp_path) -> Iterator[Path]:
    """A path that must not be created."""
    yield tmp_path / "trace"
    assert not (tmp_path / "trace").exists()


def load(folder, dtype="float32", device="cpu", lora=None, kind=VendiGuidedSDXLPipeline, **options):
    options = RunOptions(dtype=dtype, **options)
    return loading.load(Model(options, folder, kind, Sampling({}, {}), lora, None, []), device)


def change(path: Path, **content: object) -> None:
    """Change values in a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | content))


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder", "text_encoder_2"])
def test_pickles_are_never_read_and_the_message_says_how_to_convert_weights(model, trace, part):
    names = ("diffusion_pytorch_model.bin", "pytorch_model.bin")
    for name in names:
        write_bomb(model / part / name, trace)
    load(model)  # safetensors are preferred to pickles beside them
    [weights] = (model / part).glob("*.safetensors")
    tensors = load_file(weights)
    weights.unlink()
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model)
    torch.save(tensors, model / part / names[part.startswith("text")])
    with pytest.raises(ValueError, match=r"cannot be loaded: .*safetensors") as caught:
        load(model)
    code = str(caught.value).partition("that you trust: ")[2]
    exec(code, {"diffusers": diffusers})
    converted = getattr(load(Path(f"{model}-safetensors")), part).state_dict()
    assert tensors.keys() <= converted.keys()
    assert all(torch.equal(converted[key], value) for key, value in tensors.items())


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder", "text_encoder_2"])
def test_a_model_whose_files_lack_weights_is_refused(model, part):
    before = [vars(kind)["from_pretrained"] for kind in (PreTrainedModel, ModelMixin)]
    dropped = drop_weight(model / part)
    words = rf"the model in {model} cannot be loaded: .*{part} lacks the weights {dropped} of its "
    with pytest.raises(ValueError, match=words):
        load(model)
    assert before == [vars(kind)["from_pretrained"] for kind in (PreTrainedModel, ModelMixin)]


@pytest.mark.parametrize(
    "part",
    [
        *({"unet": ["my_unet", "MyUNet"]}, {"unet": ["subprocess", "Popen"]}),
        *({"unet": ["os", "system"]}, {"unet": ["transformers", "AutoModel"]}),
        *({"unet": ["torch.nn", "Linear"]}, {"unet": [3, 4]}, {"_class_name": ["pipeline", "My"]}),
    ],
)
def test_code_beside_a_model_is_never_run_from_a_folder_or_the_hub(hub, model, trace, part):
    code = f"import os\nos.mkdir({str(trace)!r})\nclass MyUNet: pass\n"
    for file in ("unet/my_unet.py", "my_unet.py", "pipeline.py", "unet/subprocess.py"):
        (model / file).write_text(code)
    change(model / "model_index.json", **part)
    put_in_cache(hub, model)
    for name in ("me/mine", str(model)):
        with pytest.raises(ValueError, match=r"asks for .*: .*code that comes with a model"):
            loading.find(RunOptions(model=name))


@pytest.mark.parametrize("part", ["unet", "text_encoder", "tokenizer"])
def test_code_that_a_part_asks_for_is_never_run(model, trace, part):
    for module in ("diffusers", "transformers", "own"):
        (model / part / f"{module}.py").write_text(f"import os\nos.mkdir({str(trace)!r})\n")
    name = "tokenizer_config.json" if part == "tokenizer" else "config.json"
    own = dict.fromkeys(("AutoModel", "AutoTokenizer", "AutoConfig"), "own.Thing")
    change(model / part / name, auto_map=own)
    with suppress(ValueError):  # whether it loads does not matter
        load(model)


def test_a_model_that_cannot_be_built_is_named_and_leaves_the_default_precision(model):
    change(model / "model_index.json", text_encoder=["transformers", "x" * 5000])
    with pytest.raises(ValueError, match=r"cannot be loaded: .*xxx\.\.\.$") as refused:
        load(model, "bfloat16")
    assert len(str(refused.value)) < 1000
    assert torch.get_default_dtype() == torch.float32


def test_a_fingerprint_covers_the_files_that_are_loaded(model, tiny_sdxl_folder):
    first = fingerprint(tiny_sdxl_folder)
    assert fingerprint(model) == first
    (model / "README.md").write_text("about")
    assert fingerprint(model) == first
    change(model / "model_index.json", _name_or_path="other")
    assert fingerprint(model) != first
    shutil.copy(tiny_sdxl_folder / "model_index.json", model)
    for file in filter(Path.is_file, sorted(model.glob("*/*"))):
        before = file.read_bytes()
        file.write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
        assert fingerprint(model) != first
        file.write_bytes(before)
    assert fingerprint(model) == first


@pytest.mark.parametrize("variant", [None, "fp16"])
def test_only_files_of_a_variant_are_loaded_and_in_the_fingerprint(model, variant):
    for weights in model.rglob("*.safetensors") if variant else ():
        weights.rename(weights.with_suffix(".fp16.safetensors"))
    load(model, variant=variant)
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model, variant=None if variant else "fp16")
    first, other = fingerprint(model, variant), "" if variant else ".fp16"
    for end in (f"{other}.safetensors", ".bf16-00001-of-00002.safetensors", ".bin"):
        (model / "unet" / f"diffusion_pytorch_model{end}").touch()
    assert fingerprint(model, variant) == first


def test_a_name_on_the_hub_is_found_in_the_cache_without_a_network(hub, tiny_sdxl_folder):
    with pytest.raises(FileNotFoundError, match=r"cannot be downloaded.* `hf download me/mine`"):
        find_model("me/mine")
    snapshot = put_in_cache(hub, tiny_sdxl_folder)
    assert find_model("me/mine") == snapshot
    load(snapshot)


@pytest.mark.parametrize(
    "name", ["", "mine", "no/such/folder", "./here", "/", "a\0b", "x" * 5000, "model/my_file"]
)
def test_a_missing_model_or_lora_is_reported_in_one_sentence(hub, model, monkeypatch, name):
    (model / "my_file").touch()
    monkeypatch.chdir(model.parent)
    with pytest.raises(FileNotFoundError, match="there is no model") as caught:
        check_model(find_model(name))
    with pytest.raises(FileNotFoundError) as of_lora:
        find_lora(name)
    assert "\n" not in str(caught.value) + str(of_lora.value)


@pytest.mark.parametrize("offload", OFFLOADS)
def test_offloading_is_left_to_diffusers(model, monkeypatch, offload):
    asked = []
    name = f"enable_{offload}_cpu_offload"
    monkeypatch.setattr(diffusers.DiffusionPipeline, name, lambda pipe, **how: asked.append(how))
    pipe = load(model, device="cuda:1", offload=offload)
    assert asked == [{"device": "cuda:1"}]
    assert pipe.device.type == "cpu"


def test_tiled_and_sliced_decoding_is_enabled_if_the_decoder_supports_it(model, monkeypatch):
    for asked in (True, False):
        vae = load(model, vae_tiling=asked, vae_slicing=asked).vae
        assert (vae.use_tiling, vae.use_slicing) == (asked, asked)
    monkeypatch.delattr(AutoencoderMixin, "enable_tiling")
    with pytest.raises(ValueError, match="--vae-tiling: this model's decoder"):
        load(model, vae_tiling=True)


def test_a_lora_is_found_in_a_folder_or_in_the_cache_of_the_hub(lora, hub):
    weights = lora / LORA_WEIGHTS
    shutil.copy(weights, lora / "four.safetensors")
    assert find_lora(str(lora)) == weights == find_lora(str(weights))
    snapshot = put_in_cache(hub, lora)
    assert find_lora("me/mine/four.safetensors") == snapshot / "four.safetensors"
    weights.unlink()
    assert find_lora(str(lora)) == lora / "four.safetensors"
    (lora / "eight.safetensors").touch()
    with pytest.raises(FileNotFoundError, match="has 2 safetensors files and no"):
        find_lora(str(lora))


@pytest.mark.parametrize(
    ("name", "steps", "kind", "first"),
    [
        ("turbo", 4, "DDIMScheduler", 999),
        ("turbo", 20, "DDIMScheduler", 951),
        ("lcm-lora-sdxl", 4, "LCMScheduler", 999),
    ],
)
def test_few_step_loras_get_their_schedule(
    tiny_sdxl_folder, lora, tmp_path, name, steps, kind, first
):
    folder = shutil.copytree(tiny_sdxl_folder, tmp_path / "leading")
    config = folder / "scheduler" / "scheduler_config.json"
    config.write_text(config.read_text().replace("trailing", "leading"))
    named = str(lora.rename(tmp_path / name))
    pipe = loading.load(
        loading.find(RunOptions(model=str(folder), lora=named, steps=steps, device="cpu")), "cpu"
    )
    pipe.scheduler.set_timesteps(steps)
    assert type(pipe.scheduler).__name__ == kind
    assert pipe.scheduler.timesteps[0] in (first, first - 1)


def test_without_peft_the_extra_is_named(lora, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r'pip install "vendi-guidance\[lora\]"'):
        find_lora(str(lora))


def test_a_lora_in_a_pickle_is_never_loaded(lora, trace, monkeypatch):
    pickle = lora / "pytorch_lora_weights.bin"
    (lora / LORA_WEIGHTS).unlink()
    write_bomb(pickle, trace)
    monkeypatch.chdir(lora)
    for name in (lora, pickle.name, pickle, "me/mine/weights.bin"):
        with pytest.raises(FileNotFoundError, match="safetensors"):
            find_lora(str(name))


def test_a_lora_that_does_not_fit_is_reported_in_one_sentence(lora, tiny_sdxl_folder, tmp_path):
    file = lora / LORA_WEIGHTS
    wide = {f"unet.down_blocks.1.resnets.0.conv1.lora_{k}.weight": torch.ones(3, 5) for k in "AB"}
    other = {"transformer.x.lora_A.weight": torch.ones(2, 2)}
    for content, words in (
        (b"not safetensors", ""),
        (save(wide), "this StableDiffusionXLPipeline"),
        (save(other), ".*it has no weights for the parts of this"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"does not fit {words}") as caught:
            load(tiny_sdxl_folder, lora=file)
        assert "\n" not in str(caught.value)
    tiny_folders.save("PixArt-Sigma", tmp_path / "pixart")
    with pytest.raises(ValueError, match="PixArtSigmaPipeline does not support LoRAs: leave"):
        load(tmp_path / "pixart", lora=file, kind=VendiGuidedPixArtSigmaPipeline)


@pytest.mark.parametrize(
    ("kind", "onednn", "avx512", "is_native"),
    [
        *[("AMD64", True, False, False), ("x86_64", False, True, True)],  # PyTorch decides
        *[("aarch64", True, False, True), ("arm64", None, True, False)],
    ],
)
def test_auto_on_cpus_is_bfloat16_if_native(monkeypatch, tmp_path, kind, onednn, avx512, is_native):
    monkeypatch.setattr(loading.platform, "machine", lambda: kind)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn is not None)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    chosen, remark = loading.choose("auto", "cpu", tmp_path)
    assert chosen == ("bfloat16" if is_native else "float32")
    assert remark.startswith(f"computing in {chosen}, ") and "--dtype" in remark
    assert loading.choose("float32", "cpu", tmp_path) == ("float32", None)
    dtype, remark = loading.choose("bfloat16", "cpu", tmp_path)
    assert dtype == "bfloat16" and ("only emulates" in (remark or "")) != is_native


@pytest.mark.parametrize(
    ("part", "has_bfloat16", "expected"),
    [
        ("unet", True, "float16"),
        ("transformer", True, "bfloat16"),
        ("transformer", False, "float32"),
    ],
)
def test_auto_on_a_gpu_is_half_precision(monkeypatch, tmp_path, part, has_bfloat16, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: has_bfloat16)
    (tmp_path / part).mkdir()
    assert loading.choose("auto", "cuda:0", tmp_path)[0] == expected
