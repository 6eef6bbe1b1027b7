"""The demo model's training images, as they lie in the repository."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch

from scripts.demo.cards import write_card
from scripts.demo.emoji import TONES, VENDORS, Emoji, load_sheets, save_sheets
from scripts.demo.probing import TRAINING_FEATURES, save_training_features
from tests.helpers.small_demo import ASSETS
from vendi_guidance.features.base import load_features
from vendi_guidance.features.probe import Probe

ACCURACY = {"concept": 1.0, "vendor": 1.0, "tone": 0.939}


@pytest.fixture
def emoji() -> Emoji:
    """Every image another gradient: noise would take the encoder seconds."""
    looks = 2 * len(VENDORS) * len(TONES)
    colours = torch.arange(looks * 3).view(2, len(VENDORS), len(TONES), 3, 1, 1)
    pixels = colours + torch.arange(64) + 2 * torch.arange(64)[:, None]
    return Emoji(("ear", "I love you hand"), (pixels % 256).to(torch.uint8))


def test_sheets_keep_every_pixel_and_every_name(emoji, tmp_path):
    save_sheets(emoji, tmp_path / "new" / "folder")
    loaded = load_sheets(tmp_path / "new" / "folder")
    assert loaded.concepts == emoji.concepts
    assert torch.equal(loaded.pixels, emoji.pixels)


def test_the_repositorys_images_lie_where_the_probe_sees_them():
    probe = Probe.from_pretrained(ASSETS / "demo-probe")
    emoji = load_sheets(ASSETS / "demo-pictures")
    assert list(emoji.concepts) == probe.concepts
    seen = probe.looks(emoji.images(emoji.concepts[::8]))
    looks = product(emoji.concepts[::8], VENDORS, TONES)
    right = [look == found for look, found in zip(looks, seen, strict=True)]
    assert sum(right) / len(right) > 0.97


def test_the_committed_features_are_the_probes_of_the_committed_images(tmp_path):
    probe = Probe.from_pretrained(ASSETS / "demo-probe")
    whole = load_sheets(ASSETS / "demo-pictures")
    first = Emoji(whole.concepts[:8], whole.pixels[:8])
    save_training_features(probe, first, tmp_path / "f.safetensors")
    computed = load_features(tmp_path / "f.safetensors")
    committed = load_features(ASSETS / "demo-probe" / TRAINING_FEATURES)
    assert committed.shape == (64 * 18, 128)
    torch.testing.assert_close(committed[: 8 * 18], computed, atol=1e-3, rtol=1e-3)


def test_files_that_cannot_be_read_are_named(emoji, tmp_path):
    save_sheets(emoji, tmp_path)
    sheet, names = tmp_path / "twemoji.webp", tmp_path / "concepts.txt"
    whole = sheet.read_bytes()
    sheet.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"twemoji.webp cannot be read"):
        load_sheets(tmp_path)
    names.write_text("ear\n")
    with pytest.raises(ValueError, match=r"noto.webp has 384x128 pixels, but 1 .* need 384x64"):
        load_sheets(tmp_path)


@pytest.mark.parametrize(
    ("name", "steps", "given"),
    [
        ("demo-sdxl", 3000, {}),
        ("demo-probe", 1200, {"images": range(1152), "tests": {"held-out accuracy": ACCURACY}}),
    ],
)
def test_the_committed_model_cards_are_those_that_training_writes(name, steps, given, tmp_path):
    machine, of_vae = "2 CPU cores in bfloat16", SimpleNamespace(steps=1800, batch=32)
    training = SimpleNamespace(steps=steps, batch=64, machine=machine, of_vae=of_vae)
    known = {"images": load_sheets(ASSETS / "demo-pictures"), "training": training}
    (tmp_path / name).mkdir()
    write_card(tmp_path / name, **(known | given))
    written, committed = (folder / name / "README.md" for folder in (tmp_path, ASSETS))
    assert written.read_text("utf-8") == committed.read_text("utf-8")
