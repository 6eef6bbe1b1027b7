"""What is kept of the comparison, so that it goes on where it was stopped."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from scripts.comparison.cache import Cache, as_sheet, from_sheet, spread
from scripts.comparison.candidates import UNGUIDED, Candidate
from scripts.comparison.runner import Runner
from scripts.comparison.scorer import MEASURES, looks_of
from scripts.comparison.trials import IN_TURN, INTERLEAVED, Drawn, Trial, parts
from scripts.demo.emoji import Emoji

DRAWING, SCORING = {"model": "a", "steps": 12}, {"probe": "b"}
PROMPTS = ("ear", "leg", "nose", "foot", "baby")
TRIAL = Trial(Candidate(UNGUIDED, {}, 5.0), PROMPTS, 2, 0, IN_TURN, "DDIMScheduler")
VALUES = dict.fromkeys(MEASURES, 0.5) | {"pixels_kernel_ratio": None, "tones_as_named": None}


def flat(number: int) -> Image.Image:
    return Image.new("RGB", (64, 64), (number, 0, 0))


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path, DRAWING, SCORING)


def save(cache: Cache) -> None:
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    cache.save(TRIAL, VALUES, [flat(number) for number in range(10)], prompts)


def test_a_run_comes_back_with_its_numbers_and_some_of_its_pictures(cache, tmp_path):
    assert cache.load(TRIAL) is None
    save(cache)
    again = Cache(tmp_path, DRAWING, SCORING)
    assert again.load(TRIAL) == VALUES
    strips = again.strips(TRIAL)
    assert list(strips) == ["ear", "leg", "foot"]
    assert [image.getpixel((5, 5))[0] for image in strips["foot"]] == [6, 7]


@pytest.mark.parametrize(
    "other",
    [
        replace(TRIAL, seed=1),
        replace(TRIAL, prompts=PROMPTS[:4]),
        replace(TRIAL, sampler="EulerDiscreteScheduler"),
        replace(TRIAL, candidate=Candidate(UNGUIDED, {}, 1.0)),
        replace(TRIAL, candidate=Candidate(UNGUIDED, {"scale": 1.0}, 5.0)),
    ],
)
def test_another_run_is_not_taken_for_it(cache, other):
    save(cache)
    assert cache.load(other) is None


def test_runs_of_another_model_or_probe_lie_beside_it(cache, tmp_path):
    save(cache)
    assert Cache(tmp_path, DRAWING | {"steps": 25}, SCORING).load(TRIAL) is None
    assert Cache(tmp_path, DRAWING, {"probe": "c"}).load(TRIAL) is None
    assert cache.load(TRIAL) == VALUES


@pytest.mark.parametrize("content", ["", '{"values": {"looks"', '{"values": {}}', "[]", "null"])
def test_a_damaged_run_is_made_anew(cache, tmp_path, content):
    save(cache)
    (file,) = (tmp_path / "trials").glob("*.json")
    file.write_text(content)
    assert cache.load(TRIAL) is None


def test_a_run_without_its_pictures_is_made_anew(cache, tmp_path):
    save(cache)
    (picture,) = (tmp_path / "trials").glob("*.png")
    picture.unlink()
    assert cache.load(TRIAL) is None


def test_runs_of_older_code_are_told(cache, monkeypatch):
    save(cache)
    assert not cache.is_of_other_code(TRIAL)
    monkeypatch.setattr("scripts.comparison.cache.code", lambda: "newer")
    assert cache.is_of_other_code(TRIAL)
    assert cache.load(TRIAL) == VALUES


def test_named_pictures_come_back_by_look(cache):
    looks = looks_of(["ear"])
    assert cache.load_named("ear", 5.0, "DDIMScheduler") is None
    cache.save_named("ear", 5.0, "DDIMScheduler", [flat(n) for n in range(len(looks))])
    found = cache.load_named("ear", 5.0, "DDIMScheduler")
    assert [image.getpixel((0, 0))[0] for image in found.values()] == list(range(len(looks)))
    assert list(found) == looks
    for other in (("leg", 5.0, "DDIMScheduler"), ("ear", 1.0, "DDIMScheduler"), ("ear", 5.0, "E")):
        assert cache.load_named(*other) is None


def test_damaged_named_pictures_are_made_anew(cache, tmp_path):
    cache.save_named("ear", 5.0, "DDIMScheduler", [flat(n) for n in range(18)])
    (file,) = (tmp_path / "named").glob("*.png")
    file.write_bytes(file.read_bytes()[:60])
    assert cache.load_named("ear", 5.0, "DDIMScheduler") is None


def test_a_sheet_gives_its_rows_back():
    rows = [[flat(1), flat(2)], [flat(3), flat(4)]]
    assert from_sheet(as_sheet(rows)) == rows


def test_items_are_taken_evenly():
    assert spread("abcdefgh", 4) == ["a", "c", "e", "g"]
    assert spread("abc", 5) == ["a", "b", "c"]


class ImageGenerator:
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

    def run(self, trial, drawn) -> Drawn:
        return self.draw(None, trial.batches(self.batch_size), 5.0, trial.sampler, drawn)


class Scorer:
    """Knows the concepts, and gives every run the same numbers."""

    training = Emoji(PROMPTS, torch.empty(0))

    def measure(self, images, prompts, named, seconds):
        assert len(images) == len(prompts) and set(named) == set(looks_of(PROMPTS))
        return dict(VALUES)

    def share_as_named(self, images, named):
        assert len(images) == len(named)
        return len(images) / 10 if images else None


def runner(cache: Cache, generator: ImageGenerator) -> Runner:
    return Runner(generator, Scorer(), cache, 5.0)


def test_what_is_drawn_is_what_was_missing(cache):
    generator, told = ImageGenerator(), []
    trials = [TRIAL, replace(TRIAL, seed=100)]
    assert runner(cache, generator).missing(trials) == 20 + 18 * len(PROMPTS)
    for one in trials:
        assert runner(cache, generator).measure(one, told.append) == VALUES
    assert generator.made == sum(told) == 20 + 18 * len(PROMPTS)
    assert runner(cache, generator).missing(trials) == 0


def test_pictures_whose_prompt_names_a_tone_are_scored_by_it_alone(cache):
    one = replace(TRIAL, protocol=INTERLEAVED)
    count = one.pictures - TRIAL.pictures
    values = runner(cache, ImageGenerator()).measure(one)
    assert count > 0
    assert values == VALUES | {"tones_as_named": count / 10}
    assert cache.load(one) == values


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(cache):
    stopped = ImageGenerator(most=75)
    with pytest.raises(KeyboardInterrupt):
        runner(cache, stopped).measure(TRIAL)
    assert stopped.made == 72  # the named pictures of four concepts
    second = ImageGenerator()
    assert runner(cache, second).measure(TRIAL) == VALUES
    assert second.made == 18 + 10
    third = ImageGenerator(most=0)
    assert runner(cache, third).measure(TRIAL) == VALUES


def test_parts_are_full_but_for_the_last():
    assert parts("abcde", 2) == [["a", "b"], ["c", "d"], ["e"]]
