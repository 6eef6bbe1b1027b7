"""The demo model's training images, and what the model is shown of them."""

from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image

from scripts.demo import emoji
from scripts.demo.emoji import TONES, VENDORS, Emoji, load_sheets
from scripts.demo.probing import save_features
from scripts.demo.texts import make_tokenizer
from tests.conftest import ASSETS
from vendi_guidance.features.base import load_features
from vendi_guidance.features.probe import TRAINING_FEATURES, Probe

CONCEPTS = ("waving hand", "I love you hand")


@pytest.fixture
def images() -> Emoji:
    """Every image another gradient: noise would take the encoder seconds."""
    looks = len(CONCEPTS) * len(VENDORS) * len(TONES)
    colours = torch.arange(looks * 3).view(len(CONCEPTS), len(VENDORS), len(TONES), 3, 1, 1)
    pixels = colours + torch.arange(64) + 2 * torch.arange(64)[:, None]
    return Emoji(CONCEPTS, (pixels % 256).to(torch.uint8))


def test_captions_name_exactly_what_they_name_and_leave_the_rest_to_the_unbalanced_mix(images):
    looks, captions = images.sample(20_000, np.random.default_rng(0))
    for (concept, vendor, tone), words in zip(looks, captions, strict=True):
        if words:
            assert words.split(", ")[0] == CONCEPTS[concept]
            assert ("skin tone" not in words) or f"{emoji.TONES[tone]} skin tone" in words
            assert ("style" not in words) or f"{emoji.VENDORS[vendor]} style" in words
    open_tone = np.array([bool(c) and "skin tone" not in c for c in captions])
    open_style = np.array([bool(c) and "style" not in c for c in captions])
    shares = np.bincount(looks[open_tone, 2]) / open_tone.sum()
    assert shares == pytest.approx(emoji.TONE_SHARES, abs=0.02)
    shares = np.bincount(looks[open_style, 1]) / open_style.sum()
    assert shares == pytest.approx(emoji.VENDOR_SHARES, abs=0.02)
    assert captions.count("") / 20_000 == pytest.approx(0.1, abs=0.01)


def test_a_tokenizer_of_captions_has_tokens_for_any_text(images, tmp_path):
    tokenizer = make_tokenizer(images.captions, tmp_path, 24)
    ids = tokenizer("Waving hand, dark skin tone").input_ids
    assert tokenizer.unk_token_id not in ids[1:-1]
    assert len(ids) <= 9  # words of captions are single tokens, start and end included
    strange = tokenizer("Zwölf Boxkämpfer!").input_ids[1:-1]
    assert tokenizer.unk_token_id not in strange
    tokenizer.save_pretrained(tmp_path / "saved")
    saved = type(tokenizer).from_pretrained(tmp_path / "saved")
    assert saved("ear").input_ids == tokenizer("ear").input_ids
    # learnt twice, it would number its tokens differently: a resumed training reads the same words
    assert make_tokenizer(images.captions, tmp_path, 24).get_vocab() == tokenizer.get_vocab()


def test_sheets_have_a_row_per_concept_and_a_column_per_tone_and_damaged_ones_are_named(tmp_path):
    (tmp_path / "concepts.txt").write_text("ear\nnose\n")
    rows = np.arange(2 * 6).reshape(2, 6).repeat(64, axis=0).repeat(64, axis=1).astype(np.uint8)
    for place, vendor in enumerate(VENDORS):
        sheet = np.stack([rows, rows + 12 * place, rows], axis=-1)
        Image.fromarray(sheet).save(tmp_path / f"{vendor}.webp", lossless=True)
    loaded = load_sheets(tmp_path)
    assert loaded.concepts == ("ear", "nose")
    assert (loaded.pixels[1, 2, 5, 0] == 11).all() and (loaded.pixels[1, 2, 5, 1] == 35).all()
    (tmp_path / "twemoji.webp").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"twemoji.webp cannot be read"):
        load_sheets(tmp_path)
    (tmp_path / "concepts.txt").write_text("ear\n")
    with pytest.raises(ValueError, match=r"noto.webp has 384x128 pixels, but 1 .* need 384x64"):
        load_sheets(tmp_path)


def test_the_probe_recognizes_the_committed_images_and_their_features_are_its_own(tmp_path):
    probe = Probe.from_pretrained(ASSETS / "demo-probe")
    emoji = load_sheets(ASSETS / "demo-pictures")
    assert list(emoji.concepts) == probe.concepts
    seen = probe.looks(emoji.images(emoji.concepts[::8]))
    looks = product(emoji.concepts[::8], VENDORS, TONES)
    right = [look == found for look, found in zip(looks, seen, strict=True)]
    assert sum(right) / len(right) > 0.97
    save_features(probe, emoji.images(emoji.concepts[:8]), tmp_path / "f.safetensors")
    committed = load_features(ASSETS / "demo-probe" / TRAINING_FEATURES)
    assert committed.shape == (64 * 18, 128)
    computed = load_features(tmp_path / "f.safetensors")
    torch.testing.assert_close(committed[: 8 * 18], computed, atol=1e-3, rtol=1e-3)
