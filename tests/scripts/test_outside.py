"""Judges of the faces demo that it did not train: they find what the drawings are known to show."""

import json

import numpy as np
import pytest
from PIL import Image

from scripts.comparison import outside
from scripts.demo.faces import pixels, sample_held_out, values_of
from tests.helpers.commands import succeeds


@pytest.fixture(scope="module")
def looks():
    return [values_of(kind) for kind in sample_held_out(32, seed=3).kinds]


def portrait(look) -> Image.Image:
    return Image.fromarray(pixels(look).transpose(1, 2, 0))


def test_pixels_tell_the_colours_of_hair_and_background(looks):
    colour, background = outside.attributes(["portrait"])
    images = [portrait(look) for look in looks]
    seen = outside.by_pixels(images, ["portrait"] * len(images), colour).argmax(1)
    assert [colour.values[i] for i in seen] == [look[1] for look in looks]
    seen = outside.by_pixels(images, ["portrait"] * len(images), background).argmax(1)
    assert [background.values[i] for i in seen] == [look[6] for look in looks]
    faded = [Image.blend(image, image.resize((9, 9)).resize((128, 128)), 0.2) for image in images]
    seen = outside.by_pixels(faded, [""] * len(faded), background).argmax(1)
    assert [background.values[i] for i in seen] == [look[6] for look in looks]


def test_prompts_name_colours_as_the_demos_captions_do():
    colour, background = outside.attributes(["portrait, white hair, red clothes", "portrait"])
    assert colour.named("portrait, white hair, red clothes") == "white"
    assert background.named("portrait, white hair, red clothes") is None


def test_the_command_tells_a_varied_run_from_one_that_repeats_itself(looks, tmp_path):
    for name in ("same", "varied"):
        (tmp_path / name).mkdir()
        rows = []
        for number in range(32):
            look = looks[number if name == "varied" else number % 8]
            portrait(look).save(tmp_path / name / f"{number}.png")
            rows.append({"file_name": f"{number}.png", "prompt": PROMPTS[number % 8]})
        (tmp_path / name / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = succeeds(outside.main, tmp_path / "same", tmp_path / "varied")
    rows = [line.split(" | ") for line in done.output.splitlines() if "×" in line]
    names = [row[0].removeprefix("| ") for row in rows]
    assert names[0] == "Conditional-Vendi, EfficientNet" and names[2] == "hair colour, pixels"
    first, second = np.array([[float(value) for value in row[1:3]] for row in rows]).T
    assert first[0] == pytest.approx(1, abs=0.02) and second[0] > 1.2  # within a prompt
    assert first[2:] == pytest.approx([1, 1, 1]) and (second[2:] > 1.5).all()


PROMPTS = [f"portrait, {hair}" for hair in ("bun", "curls", "spikes", "quiff", "mohawk", "fringe")]
PROMPTS += ["portrait", "portrait, chignon"]
