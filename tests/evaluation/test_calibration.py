"""Judges of attributes that a few labelled images correct."""

import itertools
import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy.special import expit, logit

from tests.helpers.batches_at_hand import greys, save_batch
from tests.helpers.commands import assert_refused
from tests.helpers.tiny_encoders import save_open_clip
from vendi_guidance.commands import evaluate
from vendi_guidance.evaluation.attribute_diversity import attribute_scores
from vendi_guidance.evaluation.attributes import Attribute, Calibrated
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.calibration import Calibration, agreement, calibrate

LIGHT = Attribute("light", ("dark", "bright"))


def sample(n: int, *, seed: int = 0, bias: float = 3.0, scale: float = 3.0):
    """What a judge that is too sure and prefers the first value says of n images; their labels."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(n, 2, dtype=torch.float64, generator=generator) * 1.5
    labels = torch.multinomial(true.softmax(1), 1, generator=generator)[:, 0]
    says = scale * true + torch.tensor([bias, 0.0], dtype=torch.float64)
    return says.softmax(1), labels


def test_a_biased_judge_is_corrected_and_a_good_one_left_as_it_is():
    p, labels = sample(400, bias=0.0, scale=1.0)
    assert (calibrate(p, labels)(p) - p).abs().max() < 0.06
    found = calibrate(*sample(400))
    # q ∝ exp(true) = exp((says - bias) / 3)
    assert found.scale == pytest.approx(1 / 3, rel=0.25)
    assert found.biases[0] - found.biases[1] == pytest.approx(-1, abs=0.4)
    p, labels = sample(2000, seed=1)
    before, after = agreement(p, labels), agreement(found(p), labels)
    assert after.accuracy > before.accuracy + 0.03 and after.log_loss < before.log_loss / 2
    share = float((labels == 0).double().mean())
    assert float(found(p)[:, 0].mean()) == pytest.approx(share, abs=0.05)
    assert float(p[:, 0].mean()) > 0.1 + share


def test_a_useless_judge_gives_the_frequencies_of_the_labels_drawn_towards_even():
    labels = torch.tensor([0] * 30 + [1] * 10)
    found = calibrate(torch.full((40, 2), 0.5), labels)
    q = float(found(torch.full((1, 2), 0.5))[0, 0])
    # where the slope of likelihood and prior is 0: 30 - 40 q = b, with b = log(q / (1 - q)) / 2
    assert 30 - 40 * q == pytest.approx(float(logit(q)) / 2, abs=1e-4)
    assert 0.5 < q < 0.75 and found.biases == pytest.approx((logit(q) / 2, -logit(q) / 2), abs=1e-4)


def test_few_labels_leave_a_wider_posterior():
    p, _ = sample(500, seed=1)
    widths = []
    for n in (6, 60, 600):
        means = torch.stack([q.mean(0) for q in calibrate(*sample(n)).drawn(p)])
        widths.append(float(means.std(0)[0]))
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0


def test_the_posterior_covers_the_truth():
    """95% intervals of a value's share cover it, where judges differ as the prior says."""
    generator = torch.Generator().manual_seed(0)
    covered = 0
    for _ in range(60):
        says = (2 * torch.randn(1000, 3, generator=generator, dtype=torch.float64)).softmax(1)
        scale, *biases = torch.randn(4, generator=generator, dtype=torch.float64)
        true = (scale.exp() * says.log() + torch.stack(biases)).softmax(1)
        labels = torch.multinomial(true[:40], 1, generator=generator)[:, 0]
        found = calibrate(says[:40], labels)
        spread = torch.stack([q.mean(0) for q in found.drawn(says)]).std(0)[0]
        covered += bool((found(says) - true).mean(0)[0].abs() < 1.96 * spread)
    assert 53 <= covered <= 60


def test_labels_do_not_leak_into_the_agreement():
    """Labels at random cannot be predicted, and an image's own label does not help to."""
    generator = torch.Generator().manual_seed(0)
    p, _ = sample(300)
    labels = torch.randint(2, (300,), generator=generator)
    assert calibrate(p, labels).after.accuracy < 0.6
    assert calibrate(p, labels).after.log_loss > 0.68
    # with two images, each is judged by the other's label alone: a useless judge gets both wrong
    useless = torch.full((2, 2), 0.5)
    assert calibrate(useless, torch.tensor([0, 1])).after.accuracy == 0.0


def test_a_judge_without_doubts_can_be_corrected():
    labels = torch.tensor([0] * 50 + [1] * 50)
    says = torch.eye(2)[torch.tensor([0] * 75 + [1] * 25)]  # misses half of the second value
    found = calibrate(says, labels)
    assert float(found(says)[0, 0]) == pytest.approx(2 / 3, abs=0.05)
    assert float(found(says)[-1, 1]) > 0.9


def by_level(images, prompts, attribute):
    """Calls nearly all images dark: the true border is a level of 128, its own about 200."""
    levels = np.array([np.asarray(image).mean() for image in images])
    bright = torch.from_numpy(expit((levels - 200) / 10))
    return torch.stack([1 - bright, bright], dim=1)


def save_greys(folder, levels, *, labels=True, each=({},), **columns):
    """Images and their labels; `columns` are the same of all, `each` of every row in turn."""
    rows = [
        ({"light": LIGHT.values[int(level > 127)]} if labels else {}) | columns | more
        for level, more in zip(levels, itertools.cycle(each))
    ]
    return save_batch(folder, greys(*levels), rows)


def levels(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(100, 156, n)


def test_intervals_of_a_judge_with_few_labels_are_wider(tmp_path):
    prompts = [f"room {i % 16}" for i in range(128)]
    images = greys(*levels(128, seed=9))
    found = {}
    for n in (0, 6, 200):
        judge = by_level
        if n:
            labelled = as_batch(save_greys(tmp_path / str(n), levels(n, seed=n)))
            judge = Calibrated(by_level, [LIGHT], labelled)
        [found[n]] = attribute_scores(as_batch(images, prompts), [LIGHT], judge)
    truth = 1.0  # both values in nearly all prompts
    assert found[0].means["coverage"][0] == pytest.approx(0.5, abs=0.02)
    assert found[0].calibration is None
    assert found[200].means["entropy"][0] == pytest.approx(truth, abs=0.15)
    few, many = (found[n].means["commonest"] for n in (6, 200))
    assert few[2] - few[1] > 1.3 * (many[2] - many[1])
    assert isinstance(found[6].calibration, Calibration) and found[6].calibration.labelled == 6


def test_images_may_lack_labels_and_a_judge_calls_give_corrected_probabilities(tmp_path):
    folder = save_greys(tmp_path / "labelled", levels(40), each=[{"light": None}, {}])
    judge = Calibrated(by_level, [LIGHT], as_batch(folder))
    assert judge.calibration(LIGHT).labelled == 20
    images = greys(100, 156)
    assert judge(images, ["", ""], LIGHT).argmax(1).tolist() == [0, 1]
    assert by_level(images, ["", ""], LIGHT).argmax(1).tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"not calibrated for .* 'light', only light"):
        judge(images, ["", ""], Attribute("light", ("grey", "white")))


def test_the_judge_sees_no_label(tmp_path):
    seen = []

    def judge(images, prompts, attribute):
        seen.extend([*prompts, attribute])
        return by_level(images, prompts, attribute)

    Calibrated(judge, [LIGHT], as_batch(save_greys(tmp_path / "a", levels(8), prompt="a room")))
    Calibrated(judge, [LIGHT], as_batch(save_greys(tmp_path / "b", levels(8))))
    assert seen == ["a room"] * 8 + [LIGHT] + [""] * 8 + [LIGHT]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"labels": False}, "column 'light' of metadata.jsonl has no label: label images"),
        ({"light": "dark"}, "column 'light' of metadata.jsonl has only 'dark': label images"),
        ({"light": "dim"}, r"column 'light' of 0\.png is 'dim': it must be one of dark, bright"),
        ({"light": 5}, r"column 'light' of 0\.png is 5: it must be one of dark, bright"),
        ({"light": {"x": 1}}, r"column 'light' of 0\.png is {'x': 1}: it must be one of"),
    ],
)
def test_columns_that_cannot_calibrate_are_named(tmp_path, columns, words):
    batch = as_batch(save_greys(tmp_path / "labelled", levels(8), **columns))
    with pytest.raises(ValueError, match=f"labelled: {words}"):
        Calibrated(by_level, [LIGHT], batch)


def test_attributes_of_one_name_may_have_other_values_for_other_prompts(tmp_path):
    dogs = Attribute("colour", ("black", "brown"), "a dog")
    cars = Attribute("colour", ("red", "blue"), "a car")
    names = [{"colour": name} for name in ("black", "brown", "red", "blue")]
    folder = save_greys(tmp_path / "labelled", levels(8), labels=False, each=names)
    judge = Calibrated(by_level, [dogs, cars], as_batch(folder))
    assert judge.calibration(dogs).labelled == judge.calibration(cars).labelled == 4


def test_the_command_calibrates_and_reports_the_agreement(tmp_path, tiny_sdxl_folder, unrendered):
    (tmp_path / "clip").mkdir()
    save_open_clip(tmp_path / "clip")
    run = save_greys(tmp_path / "run", levels(16), labels=False, prompt="a room")
    labelled = save_greys(tmp_path / "labelled", levels(30, seed=1))
    (tmp_path / "attributes.json").write_text('{"light": ["dark", "bright"]}')
    words = [run, "--output", tmp_path / "report", "--image-embedder", "pixels:2"]
    words += ["--prompt-embedder", f"sdxl:{tiny_sdxl_folder}"]
    words += ["--attribute-calibration", labelled]

    def call(*more):
        return CliRunner().invoke(evaluate.main, [str(word) for word in (*words, *more)])

    file = ("--attributes", tmp_path / "attributes.json")
    result = call(*file, "--attribute-judge", f"clip:{tmp_path / 'clip'}")
    assert result.exit_code == 0, result.output
    [about] = json.loads((tmp_path / "report" / "report.json").read_text())["runs"]
    found = about["attributes"][0]["calibration"]
    assert found["labelled"] == 30 and len(found["biases"]) == 2
    # nothing is learnt from random weights: no better than tossing a coin, and no longer too sure
    assert found["after"]["log_loss"] == pytest.approx(np.log(2), abs=0.15)
    line = "light: the judge is calibrated by 30 labelled images. It agrees with"
    assert line in (tmp_path / "report" / "report.html").read_text()
    assert line in (tmp_path / "report" / "report.md").read_text()
    assert_refused(call(), "needs --attributes FILE")
    assert_refused(call(*file, "--attribute-judge", "labels"), "labels", "give one of them")
