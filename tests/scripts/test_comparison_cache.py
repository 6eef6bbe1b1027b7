"""What is kept of the comparison, so that it goes on where it was stopped."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from scripts.comparison import cache
from scripts.comparison.cache import Archive, as_sheet, from_sheet, spread
from scripts.comparison.candidates import UNGUIDED, Contender
from scripts.comparison.runner import Lab
from scripts.comparison.scorer import MEASURES, looks_of
from scripts.comparison.trials import IN_TURN, INTERLEAVED, Drawn, Unit, parts
from scripts.demo.emoji import Emoji

DRAWING, JUDGING = {"model": "a", "steps": 12}, {"probe": "b"}
PROMPTS = ("ear", "leg", "nose", "foot", "baby")
UNIT = Unit(Contender(UNGUIDED, {}, 5.0), PROMPTS, 2, 0, IN_TURN, "DDIMScheduler")
VALUES = dict.fromkeys(MEASURES, 0.5) | {"pixels_kernel_ratio": None, "tones_as_named": None}


def flat(number: int) -> Image.Image:
    return Image.new("RGB", (64, 64), (number, 0, 0))


@pytest.fixture
def archive(tmp_path) -> Archive:
    return Archive(tmp_path, DRAWING, JUDGING)


def save(archive: Archive) -> None:
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    archive.save(UNIT, VALUES, [flat(number) for number in range(10)], prompts)


def test_a_run_comes_back_with_its_numbers_and_some_of_its_pictures(archive, tmp_path):
    assert archive.load(UNIT) is None
    save(archive)
    again = Archive(tmp_path, DRAWING, JUDGING)
    assert again.load(UNIT) == VALUES
    strips = again.strips(UNIT)
    assert list(strips) == ["ear", "leg", "foot"]
    assert [image.getpixel((5, 5))[0] for image in strips["foot"]] == [6, 7]


@pytest.mark.parametrize(
    "other",
    [
        replace(UNIT, seed=1),
        replace(UNIT, prompts=PROMPTS[:4]),
        replace(UNIT, sampler="EulerDiscreteScheduler"),
        replace(UNIT, contender=Contender(UNGUIDED, {}, 1.0)),
        replace(UNIT, contender=Contender(UNGUIDED, {"scale": 1.0}, 5.0)),
    ],
)
def test_another_run_is_not_taken_for_it(archive, other):
    save(archive)
    assert archive.load(other) is None


def test_runs_of_another_model_or_judge_lie_beside_it(archive, tmp_path):
    save(archive)
    assert Archive(tmp_path, DRAWING | {"steps": 25}, JUDGING).load(UNIT) is None
    assert Archive(tmp_path, DRAWING, {"probe": "c"}).load(UNIT) is None
    assert archive.load(UNIT) == VALUES


@pytest.mark.parametrize("content", ["", '{"values": {"looks"', '{"values": {}}', "[]", "null"])
def test_a_damaged_run_is_made_anew(archive, tmp_path, content):
    save(archive)
    (file,) = (tmp_path / "units").glob("*.json")
    file.write_text(content)
    assert archive.load(UNIT) is None


def test_a_run_without_its_pictures_is_made_anew(archive, tmp_path):
    save(archive)
    (picture,) = (tmp_path / "units").glob("*.png")
    picture.unlink()
    assert archive.load(UNIT) is None


def test_runs_of_older_code_are_told(archive, monkeypatch):
    save(archive)
    assert not archive.is_of_other_code(UNIT)
    monkeypatch.setattr(cache, "code", lambda: "newer")
    assert archive.is_of_other_code(UNIT)
    assert archive.load(UNIT) == VALUES


def test_named_pictures_come_back_by_look(archive):
    looks = looks_of(["ear"])
    assert archive.load_named("ear", 5.0, "DDIMScheduler") is None
    archive.save_named("ear", 5.0, "DDIMScheduler", [flat(n) for n in range(len(looks))])
    found = archive.load_named("ear", 5.0, "DDIMScheduler")
    assert [image.getpixel((0, 0))[0] for image in found.values()] == list(range(len(looks)))
    assert list(found) == looks
    for other in (("leg", 5.0, "DDIMScheduler"), ("ear", 1.0, "DDIMScheduler"), ("ear", 5.0, "E")):
        assert archive.load_named(*other) is None


def test_damaged_named_pictures_are_made_anew(archive, tmp_path):
    archive.save_named("ear", 5.0, "DDIMScheduler", [flat(n) for n in range(18)])
    (file,) = (tmp_path / "named").glob("*.png")
    file.write_bytes(file.read_bytes()[:60])
    assert archive.load_named("ear", 5.0, "DDIMScheduler") is None


def test_a_sheet_gives_its_rows_back():
    rows = [[flat(1), flat(2)], [flat(3), flat(4)]]
    assert from_sheet(as_sheet(rows)) == rows


def test_items_are_taken_evenly():
    assert spread("abcdefgh", 4) == ["a", "c", "e", "g"]
    assert spread("abc", 5) == ["a", "b", "c"]


class Studio:
    """Draws flat pictures and counts them; stops after some, as a killed process does."""

    batch_size, samplers = 4, {"DDIMScheduler": None}

    def __init__(self, most: int = 1000) -> None:
        self.left, self.made = most, 0

    def draw(self, method, batches, guidance_scale, sampler, drawn) -> Drawn:
        count = sum(map(len, batches))
        if self.left < count:
            raise KeyboardInterrupt
        self.left, self.made = self.left - count, self.made + count
        drawn(count)
        return Drawn([flat(number % 256) for number in range(count)], 1.0)

    def run(self, unit, drawn) -> Drawn:
        return self.draw(None, unit.batches(self.batch_size), 5.0, unit.sampler, drawn)


class Judge:
    """Knows the concepts, and gives every run the same numbers."""

    training = Emoji(PROMPTS, torch.empty(0))

    def measure(self, images, prompts, named, seconds):
        assert len(images) == len(prompts) and set(named) == set(looks_of(PROMPTS))
        return dict(VALUES)

    def share_as_named(self, images, named):
        assert len(images) == len(named)
        return len(images) / 10 if images else None


def lab(archive: Archive, studio: Studio) -> Lab:
    return Lab(studio, Judge(), archive, 5.0)


def test_what_is_drawn_is_what_was_missing(archive):
    studio, told = Studio(), []
    units = [UNIT, replace(UNIT, seed=100)]
    assert lab(archive, studio).missing(units) == 20 + 18 * len(PROMPTS)
    for one in units:
        assert lab(archive, studio).measure(one, told.append) == VALUES
    assert studio.made == sum(told) == 20 + 18 * len(PROMPTS)
    assert lab(archive, studio).missing(units) == 0


def test_pictures_whose_prompt_names_a_tone_are_judged_by_it_alone(archive):
    one = replace(UNIT, protocol=INTERLEAVED)
    count = one.pictures - UNIT.pictures
    values = lab(archive, Studio()).measure(one)
    assert count > 0
    assert values == VALUES | {"tones_as_named": count / 10}
    assert archive.load(one) == values


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(archive):
    stopped = Studio(most=75)
    with pytest.raises(KeyboardInterrupt):
        lab(archive, stopped).measure(UNIT)
    assert stopped.made == 72  # the named pictures of four concepts
    second = Studio()
    assert lab(archive, second).measure(UNIT) == VALUES
    assert second.made == 18 + 10
    third = Studio(most=0)
    assert lab(archive, third).measure(UNIT) == VALUES


def test_parts_are_full_but_for_the_last():
    assert parts("abcde", 2) == [["a", "b"], ["c", "d"], ["e"]]
