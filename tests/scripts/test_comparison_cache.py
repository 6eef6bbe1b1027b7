"""What is kept of the comparison, so that it goes on where it was stopped."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from scripts.comparison.cache import Cache, as_sheet, from_sheet, shown
from scripts.comparison.candidates import UNGUIDED, Candidate
from scripts.comparison.measures import MEASURES, Scores
from scripts.comparison.runner import Runner
from scripts.comparison.trials import IN_TURN, Drawn, How, Trial, parts
from scripts.demo.emoji import Emoji
from tests.helpers.emoji_prompts import asked, emoji_probe

DRAWING, NAMING, SCORING = {"model": "a"}, {"steps": 12}, {"probe": "b"}
CONCEPTS = ("ear", "leg", "nose", "foot")
EMOJI = Emoji(CONCEPTS, torch.empty(0))
PROMPTS = (*map(asked, CONCEPTS), asked("baby", tone="dark"))
HOW = How(2, IN_TURN, "ddim", 12, 4)
TRIAL = Trial(Candidate(UNGUIDED, {}, 5.0), PROMPTS, 0, HOW)
SCORES = Scores(dict.fromkeys(MEASURES, 0.5) | {"vendi": None}, {"looks": [1.0, None]})
SET = 18  # named images of a concept


def flat(number: int) -> Image.Image:
    return Image.new("RGB", (64, 64), (number, 0, 0))


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path, DRAWING, NAMING, SCORING)


def save(cache: Cache) -> None:
    prompts = [prompt for prompt in PROMPTS for _ in range(2)]
    cache.save(TRIAL, SCORES, [flat(number) for number in range(10)], prompts)


def test_a_run_comes_back_with_its_numbers_and_some_of_its_pictures(cache, tmp_path):
    assert cache.load(TRIAL) is None
    save(cache)
    again = Cache(tmp_path, DRAWING, NAMING, SCORING)
    assert again.load(TRIAL) == SCORES
    strips = again.strips(TRIAL)
    assert list(strips) == ["ear", "nose", "baby, dark skin tone"]
    assert [image.getpixel((5, 5))[0] for image in strips["nose"]] == [4, 5]
    assert list(strips) == [prompt.words for prompt in shown(TRIAL)]


@pytest.mark.parametrize(
    "other",
    [
        replace(TRIAL, seed=1),
        replace(TRIAL, prompts=PROMPTS[:4]),
        replace(TRIAL, prompts=(*PROMPTS[:4], asked("baby", tone="light"))),
        replace(TRIAL, how=HOW._replace(sampler="euler")),
        replace(TRIAL, how=HOW._replace(steps=25)),
        replace(TRIAL, candidate=Candidate(UNGUIDED, {}, 1.0)),
        replace(TRIAL, candidate=Candidate(UNGUIDED, {"scale": 1.0}, 5.0)),
    ],
)
def test_another_run_is_not_taken_for_it(cache, other):
    save(cache)
    assert cache.load(other) is None


def test_runs_of_another_model_or_probe_lie_beside_it(cache, tmp_path):
    save(cache)
    assert Cache(tmp_path, {"model": "c"}, NAMING, SCORING).load(TRIAL) is None
    assert Cache(tmp_path, DRAWING, {"steps": 25}, SCORING).load(TRIAL) is None
    assert Cache(tmp_path, DRAWING, NAMING, {"probe": "c"}).load(TRIAL) is None
    assert cache.load(TRIAL) == SCORES


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
    assert cache.load(TRIAL) == SCORES


def test_named_pictures_come_back_by_look(cache, tmp_path):
    looks = EMOJI.looks(["ear"])
    assert cache.load_named(looks) is None
    cache.save_named("ear", [flat(n) for n in range(len(looks))])
    found = cache.load_named(EMOJI.looks(["ear"]))
    assert [image.getpixel((0, 0))[0] for image in found.values()] == list(range(len(looks)))
    assert list(found) == looks
    assert cache.load_named(EMOJI.looks(["leg"])) is None
    assert Cache(tmp_path, DRAWING, {"steps": 25}, SCORING).load_named(EMOJI.looks(["ear"])) is None


def test_damaged_named_pictures_are_made_anew(cache, tmp_path):
    cache.save_named("ear", [flat(n) for n in range(SET)])
    (file,) = (tmp_path / "named").glob("*.png")
    file.write_bytes(file.read_bytes()[:60])
    assert cache.load_named(EMOJI.looks(["ear"])) is None


def test_a_sheet_gives_its_rows_back():
    rows = [[flat(1), flat(2)], [flat(3), flat(4)]]
    assert from_sheet(as_sheet(rows)) == rows


class ImageGenerator:
    """Draws flat pictures and counts them; stops after some, as a killed process does."""

    def __init__(self, most: int = 1000) -> None:
        self.left, self.made = most, 0

    def draw(self, method, batches, guidance_scale, how, report) -> Drawn:
        count = sum(map(len, batches))
        if self.left < count:
            raise KeyboardInterrupt
        self.left, self.made = self.left - count, self.made + count
        report(count * how.steps)
        return Drawn([flat(number % 256) for number in range(count)], 1.0, 32 * count)

    def run(self, trial, report) -> Drawn:
        return self.draw(None, trial.batches(), 5.0, trial.how, report)


class Scorer:
    """Knows the concepts, and gives every run the same numbers."""

    training = EMOJI
    probe = emoji_probe(CONCEPTS)

    def measure(self, images, prompts, named, seconds, evaluations):
        assert len(images) == len(prompts) and evaluations == 32 * len(images)
        assert set(named) == set(EMOJI.looks(CONCEPTS))
        return SCORES

    def kept(self, pairs):
        assert len(pairs) == SET * len(CONCEPTS)
        return {prompt: 0.75 for _, prompt in pairs}


def runner(cache: Cache, generator: ImageGenerator) -> Runner:
    return Runner(generator, Scorer(), cache, 5.0, HOW)


def test_what_is_drawn_is_what_was_missing(cache):
    generator, told = ImageGenerator(), []
    trials = [TRIAL, replace(TRIAL, seed=100)]
    pictures = 20 + SET * len(CONCEPTS)
    assert runner(cache, generator).missing(trials) == (pictures, pictures * HOW.steps)
    for one in trials:
        assert runner(cache, generator).measure(one, told.append) == SCORES
    assert generator.made == pictures and sum(told) == pictures * HOW.steps
    assert runner(cache, generator).missing(trials) == (0, 0)


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(cache):
    stopped = ImageGenerator(most=75)
    with pytest.raises(KeyboardInterrupt):
        runner(cache, stopped).measure(TRIAL)
    assert stopped.made == SET * len(CONCEPTS)
    second = ImageGenerator()
    assert runner(cache, second).measure(TRIAL) == SCORES
    assert second.made == 10
    third = ImageGenerator(most=0)
    assert runner(cache, third).measure(TRIAL) == SCORES


def test_named_pictures_are_checked_too(cache):
    assert runner(cache, ImageGenerator()).share_as_named(CONCEPTS) == 0.75


def test_parts_are_full_but_for_the_last():
    assert parts("abcde", 2) == [["a", "b"], ["c", "d"], ["e"]]
