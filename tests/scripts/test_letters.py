"""Letters in typefaces: what is drawn, how it is called, and how it is kept."""

import shutil
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from scripts.demo import letters as demo
from tests.helpers.small_demo import ASSETS
from vendi_guidance.features.probe import load_probe

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
FACES = {
    "400-normal": "DejaVuSans.ttf",
    "700-normal": "DejaVuSans-Bold.ttf",
    "400-italic": "DejaVuSans-Oblique.ttf",
    "700-italic": "DejaVuSans-BoldOblique.ttf",
}


@pytest.fixture
def flat() -> demo.Letters:
    """A face of every look; every image of another shade."""
    kinds = np.array(list(np.ndindex(5, 2, 2)))
    shades = torch.arange(26 * 20).view(26, 20, 1, 1) % 256
    return demo.Letters(("family",) * 20, kinds, shades.expand(26, 20, 64, 64).to(torch.uint8))


@pytest.fixture
def dejavu(tmp_path, monkeypatch) -> demo.Letters:
    """DejaVu as a sans-serif family with italics, and as handwriting that has none and slants."""
    monkeypatch.setattr(
        demo, "FAMILIES", {"serif": (), "sans-serif": ("one@1",), "handwriting": ("two@1",)}
    )
    monkeypatch.setattr(demo, "SLANTED", ("two",))
    for family, faces in {"one": [*FACES], "two": ["400-normal", "700-normal"]}.items():
        (tmp_path / family / "files").mkdir(parents=True)
        for face in faces:
            target = tmp_path / family / "files" / f"{family}-latin-{face}.woff"
            shutil.copyfile(FONTS / FACES[face], target)
    return demo.load(tmp_path)


def ink(page: torch.Tensor) -> float:
    return (255 - page.float()).mean().item()


def test_faces_are_labelled_by_weight_and_by_the_slant_that_they_show(dejavu):
    assert dejavu.families == ("one",) * 4 + ("two",) * 2
    assert dejavu.kinds.tolist() == [
        *([1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]),
        *([2, 0, 1], [2, 1, 1]),
    ]
    for letter in range(26):
        assert ink(dejavu.pixels[letter, 2]) > ink(dejavu.pixels[letter, 0])  # bold has more


def test_letters_of_a_family_share_a_size_and_a_baseline_and_lie_inside_the_image(dejavu):
    rows = [(page < 128).any(dim=1).nonzero() for page in dejavu.pixels[:, 0]]
    bottoms = {letter: rows[ord(letter) - ord("a")].max().item() for letter in "hkmnrxz"}
    assert max(bottoms.values()) - min(bottoms.values()) <= 1
    assert max(r.max() for r in rows) - min(r.min() for r in rows) <= demo.INK
    edges = [dejavu.pixels[..., 0, :], dejavu.pixels[..., :, 0], dejavu.pixels[..., :, -1]]
    assert all((edge == 255).all() for edge in edges)


def test_captions_name_exactly_what_they_name_and_leave_the_rest_to_the_unbalanced_mix(flat):
    pairs, captions = flat.sample(20_000, np.random.default_rng(0))
    looks = [demo.values_of(flat.kinds[face]) for _, face in pairs]
    for (letter, _), look, words in zip(pairs, looks, captions, strict=True):
        if words:
            concept, *named = words.split(", ")
            assert concept == demo.CONCEPTS[letter]
            assert set(named) <= set(look)
    assert captions.count("") / 20_000 == pytest.approx(0.1, abs=0.01)
    for i, (name, values) in enumerate(demo.ATTRIBUTES.items()):
        open_values = [
            look[i]
            for look, words in zip(looks, captions, strict=True)
            if words and not set(values) & set(words.split(", "))
        ]
        shares = [open_values.count(value) / len(open_values) for value in values]
        assert shares == pytest.approx(demo.SHARES[name], abs=0.02)


def test_every_image_has_its_labels_and_is_black_on_white(flat):
    assert flat.images.shape == (26 * 20, 3, 64, 64)
    assert flat.labels[41].tolist() == [2, 0, 0, 1]  # the third letter's second face
    assert (flat.images[41] == 41).all()


def test_sheets_keep_every_face_and_every_pixel_but_for_a_shade(flat, tmp_path):
    some = flat.select(np.arange(20) % 4 == 0)  # a face of each class
    demo.save_sheets(some, tmp_path / "new" / "folder")
    loaded = demo.load_sheets(tmp_path / "new" / "folder")
    assert loaded.families == some.families
    assert np.array_equal(loaded.kinds, some.kinds)
    change = (loaded.pixels.int() - some.pixels.int()).abs().max()
    assert change <= 9 and len(loaded.pixels.unique()) <= 16


def test_a_missing_file_and_a_face_of_no_known_look_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"faces\.txt"):
        demo.load_sheets(tmp_path)
    (tmp_path / demo.SHEET_FACES).write_text("gelasio, serif, bold, upright\n")
    with pytest.raises(FileNotFoundError, match=r"serif\.webp"):
        demo.load_sheets(tmp_path)
    (tmp_path / demo.SHEET_FACES).write_text("gelasio, serif, heavy, upright\n")
    with pytest.raises(
        ValueError, match=r"faces\.txt: 'gelasio, serif, heavy, upright' is no face"
    ):
        demo.load_sheets(tmp_path)


def test_the_repositorys_letters_lie_where_the_probe_sees_them():
    probe = load_probe(ASSETS / "demo-letters-probe")
    letters = demo.load_sheets(ASSETS / "demo-letters")
    assert probe.concepts == list(demo.CONCEPTS) and list(probe.attributes) == list(demo.ATTRIBUTES)
    rows = [demo.CONCEPTS.index("letter g"), demo.CONCEPTS.index("letter r")]
    pages = letters.pixels[rows].flatten(0, 1).numpy()
    seen = probe.looks([Image.fromarray(page).convert("RGB") for page in pages])
    wanted = [(demo.CONCEPTS[row], *demo.values_of(kind)) for row in rows for kind in letters.kinds]
    assert np.mean([a == b for a, b in zip(seen, wanted, strict=True)]) > 0.95
