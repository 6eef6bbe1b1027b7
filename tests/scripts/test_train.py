"""The demo model's training: what it is shown."""

import json

import click
import numpy as np
import pytest
import torch
from PIL import Image

from scripts.demo import emoji
from scripts.demo.texts import make_tokenizer

CONCEPTS = ("waving hand", "ear", "nose")


@pytest.fixture
def images():
    return emoji.Emoji(CONCEPTS, torch.zeros(3, 3, 6, 3, 64, 64, dtype=torch.uint8))


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


def test_images_are_read_by_vendor_and_tone_on_white(tmp_path, monkeypatch):
    monkeypatch.setattr(emoji, "_PEOPLE", ())
    codes = ["1F3FB", "1F3FC", "1F3FD", "1F3FE", "1F3FF"]
    variants = {c: {"image": f"1f44b-{c.lower()}.png", "unified": f"1F44B-{c}"} for c in codes}
    entry = {
        "name": "WAVING HAND SIGN",
        "short_name": "wave",
        "subcategory": "hand-fingers-open",
        "image": "1f44b.png",
        "unified": "1F44B",
        "skin_variations": variants,
    }
    folders = ["noto/img/google/64", "twemoji/img/twitter/64", "fluent/assets"]
    for number, folder in enumerate(folders):
        (tmp_path / folder).mkdir(parents=True)
        for tone, name in enumerate(["1f44b", *(f"1f44b-{c.lower()}" for c in codes)]):
            shade = (40 * number + 5 * tone, 0, 0, 255 if tone else 0)
            suffix = "webp" if number == 2 else "png"
            picture = Image.new("RGBA", (64, 64), shade)
            picture.save(tmp_path / folder / f"{name}.{suffix}", lossless=True)
    (tmp_path / "noto" / "emoji.json").write_text(json.dumps([entry]))
    loaded = emoji.load(tmp_path)
    assert loaded.concepts == ("waving hand",)
    assert loaded.pixels[0, 1, 1:, 0, 0, 0].tolist() == [45, 50, 55, 60, 65]
    # Fluent's package has the names of its second and third skin tones exchanged
    assert loaded.pixels[0, 2, 1:, 0, 0, 0].tolist() == [85, 95, 90, 100, 105]
    assert (loaded.pixels[0, :, 0] == 255).all()  # what is transparent is white


def test_missing_npm_is_said_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(emoji.shutil, "which", lambda _: None)
    with pytest.raises(click.UsageError, match=r"npm is needed once.*install Node\.js"):
        emoji.fetch(tmp_path / "data")
    assert not (tmp_path / "data").exists()
