"""Loading of models, and fingerprints."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import diffusers
import pytest
import torch
from diffusers import ModelMixin
from diffusers.models.autoencoders.vae import AutoencoderMixin
from safetensors.torch import load_file
from transformers import PreTrainedModel

from tests.helpers.damage import drop_weight, write_bomb
from tests.helpers.runs import put_in_cache
from vendi_guidance import VendiGuidedSDXLPipeline
from vendi_guidance.runs.models import (
    BLOCK,
    BLOCKS,
    check_model,
    find_model,
    fingerprint,
    load_model,
)
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.precision import OFFLOADS


@pytest.fixture
def model(tiny_sdxl_folder, tmp_path) -> Path:
    return shutil.copytree(tiny_sdxl_folder, tmp_path / "model")


@pytest.fixture
def trace(tmp_path) -> Iterator[Path]:
    """A path that must not be created."""
    yield tmp_path / "trace"
    assert not (tmp_path / "trace").exists()


def load(model: Path, dtype: str = "float32", device: str = "cpu", **options):
    options = RunOptions(dtype=dtype, **options)
    return load_model(VendiGuidedSDXLPipeline, model, options, device)


def change(path: Path, **content: object) -> None:
    """Change values in a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | content))


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder"])
def test_pickled_weights_are_refused_and_the_message_says_how_to_convert_them(model, part):
    [weights] = (model / part).glob("*.safetensors")
    name = "pytorch_model.bin" if part == "text_encoder" else "diffusion_pytorch_model.bin"
    tensors = load_file(weights)
    weights.unlink()
    torch.save(tensors, model / part / name)
    with pytest.raises(ValueError, match=r"cannot be loaded: .*safetensors") as caught:
        load(model)
    code = str(caught.value).partition("that you trust: ")[2]
    exec(code, {"diffusers": diffusers})
    converted = getattr(load(Path(f"{model}-safetensors")), part).state_dict()
    assert tensors.keys() <= converted.keys()
    assert all(torch.equal(converted[key], value) for key, value in tensors.items())


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder", "text_encoder_2"])
def test_a_pickle_that_runs_code_is_never_run(model, trace, part):
    for name in ("pytorch_model.bin", "diffusion_pytorch_model.bin"):
        write_bomb(model / part / name, trace)
    load(model)  # safetensors are preferred to pickles beside them
    [weights] = (model / part).glob("*.safetensors")
    weights.unlink()
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model)


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
    for refused in (lambda: find_model("me/mine"), lambda: load(model)):
        with pytest.raises(ValueError, match=r"asks for .*: .*code that comes with a model"):
            refused()


def test_a_model_that_cannot_be_built_leaves_the_default_precision(model):
    change(model / "vae" / "config.json", block_out_channels=None)
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model, "bfloat16")
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("part", ["unet", "text_encoder", "tokenizer"])
def test_code_that_a_part_asks_for_is_never_run(model, trace, part):
    for module in ("diffusers", "transformers", "own"):
        (model / part / f"{module}.py").write_text(f"import os\nos.mkdir({str(trace)!r})\n")
    name = "tokenizer_config.json" if part == "tokenizer" else "config.json"
    own = dict.fromkeys(("AutoModel", "AutoTokenizer", "AutoConfig"), "own.Thing")
    change(model / part / name, auto_map=own)
    with suppress(ValueError):  # whether it loads does not matter
        load(model)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", "[" * 100_000, '{"_class_name": 1}'])
def test_an_invalid_index_is_named(model, content):
    (model / "model_index.json").write_text(content)
    with pytest.raises(ValueError, match=r"model_index\.json"):
        check_model(model)


def test_a_long_message_of_a_library_is_truncated(model):
    change(model / "model_index.json", text_encoder=["transformers", "x" * 5000])
    with pytest.raises(ValueError, match=r"cannot be loaded: .*xxx\.\.\.$") as refused:
        load(model)
    assert len(str(refused.value)) < 1000


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
def test_a_fingerprint_leaves_out_weights_that_are_not_loaded(model, variant):
    for weights in model.rglob("*.safetensors") if variant else ():
        weights.rename(weights.with_suffix(".fp16.safetensors"))
    first, other = fingerprint(model, variant), "" if variant else ".fp16"
    for end in (f"{other}.safetensors", ".bf16-00001-of-00002.safetensors", ".bin", ".msgpack"):
        (model / "unet" / f"diffusion_pytorch_model{end}").touch()
    (model / "unet" / "diffusion_pytorch_model.safetensors.index.bf16.json").touch()
    assert fingerprint(model, variant) == first
    [loaded] = (model / "unet").glob(f"*model{'.fp16' * bool(variant)}.safetensors")
    loaded.write_bytes(b"more")
    assert fingerprint(model, variant) != first


def test_the_fingerprint_of_an_older_version_covers_all_files_and_stays_valid(tmp_path):
    for name in ("model.fp16.safetensors", "model.safetensors"):
        (tmp_path / name).write_bytes(b"weights")
    content = b"'model.fp16.safetensors' 7\nweights'model.safetensors' 7\nweights"
    older = hashlib.sha256(content).hexdigest()
    assert fingerprint(tmp_path, began=older) == older != fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"others!")
    assert fingerprint(tmp_path, began=older) == fingerprint(tmp_path)


def test_the_fingerprint_of_a_large_model_reads_little(model, monkeypatch):
    large = model / "unet" / "large.safetensors"
    with large.open("wb") as file:
        file.truncate(30 * 2**30)
    first = fingerprint(model)
    digest = Mock()
    monkeypatch.setattr(hashlib, "sha256", digest)
    fingerprint(model)
    read = [len(call.args[0]) for call in digest.return_value.update.call_args_list]
    assert sum(read) < 2 * BLOCKS * BLOCK
    monkeypatch.undo()
    with large.open("r+b") as file:
        file.seek(30 * 2**30 // BLOCKS * 7 + BLOCK // 2)
        file.write(b"other")
    assert fingerprint(model) != first


def test_a_name_on_the_hub_is_found_in_the_cache_without_a_network(hub, tiny_sdxl_folder):
    with pytest.raises(FileNotFoundError, match=r"cannot be reached.* `hf download me/mine`"):
        find_model("me/mine")
    snapshot = put_in_cache(hub, tiny_sdxl_folder)
    assert find_model("me/mine") == snapshot
    load(snapshot)


@pytest.mark.parametrize(
    "name",
    ["", "sdxl", "no/such/folder", "./here", "/", "a\0b", "x" * 5000, "model/model_index.json"],
)
def test_a_name_that_is_invalid_on_the_hub_is_a_folder(hub, model, monkeypatch, name):
    monkeypatch.chdir(model.parent)
    with pytest.raises((FileNotFoundError, ValueError), match="there is no model") as caught:
        check_model(find_model(name))
    assert "\n" not in str(caught.value)


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


def test_files_of_a_variant_are_loaded(model):
    for weights in model.rglob("*.safetensors"):
        weights.rename(weights.with_suffix(f".fp16{weights.suffix}"))
    load(model, variant="fp16")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(model)
