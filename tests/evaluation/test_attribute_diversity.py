"""Effective values and looks of a run, of training images and of even draws.

Batches have labels in place of a judge.
"""

from dataclasses import replace
from math import log

import pytest
from PIL import Image

from tests.conftest import SCRIPTS
from vendi_guidance.commands.scoring_options import open_attributes
from vendi_guidance.evaluation.attribute_diversity import (
    MIX,
    attribute_scores,
    attribute_spreads,
    change,
    read_mix,
)
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.features.probe import Probe, ProbeLabeler, load_probe


@pytest.fixture
def hues():
    """Two attributes of the images of two prompts, one of which names the colour of a coat."""
    asked = {"a": None, "a, red coat": "red"}
    return [
        Attribute("coat", ("red", "blue"), asked=asked),
        Attribute("hat", ("red", "blue", "green"), asked=dict.fromkeys(asked)),
    ]


def labelled(rows, prompts):
    """A batch with these rows of `metadata.jsonl`."""
    return replace(as_batch([Image.new("RGB", (8, 8))] * len(rows), prompts), rows=rows)


def labels(*pairs):
    """Images of prompt "a", labelled with pairs of coat and hat."""
    return labelled([{"coat": coat, "hat": hat} for coat, hat in pairs], ["a"] * len(pairs))


def spreads_of(batch, attributes, *mix):
    return attribute_spreads(attribute_scores(batch, attributes, None), batch.prompts, *mix)


def test_spreads_count_effective_values_and_combinations_of_what_is_open(hues):
    batch = labels(("red", "red"), ("red", "green"), ("blue", "red"), ("blue", "green"))
    coat, hat, looks = spreads_of(batch, hues)
    assert (coat.value, hat.value, looks.value) == pytest.approx((2, 2, 4))
    assert (coat.most, hat.most, looks.most) == (2, 3, 4)  # images, not the six combinations
    assert [row.training for row in (coat, hat, looks)] == [None] * 3
    one_look = labels(*[("red", "green")] * 4)
    alone = spreads_of(one_look, hues)
    assert [row.value for row in alone] == pytest.approx([1, 1, 1])
    assert [change(*both)[0] for both in zip(alone, (coat, hat, looks), strict=True)] == (
        pytest.approx([2, 2, 4])
    )
    named = replace(one_look, prompts=["a, red coat"] * 4)
    [only] = spreads_of(named, hues)
    assert only.title == "hat"  # and one open attribute makes no combinations
    assert change(only, coat) is None


def test_even_and_training_draws_are_of_as_many_images(hues):
    few = labels(*[("red", "green")] * 2)
    alike = [(1.0, {"coat": {"red": 1.0}, "hat": {"green": 1.0}})]
    coat, _, looks = spreads_of(few, hues, alike)
    # two images show one colour of two or both, each in half of all draws
    assert log(coat.even) == pytest.approx(log(2) / 2, abs=0.03)
    assert looks.even == pytest.approx(2 - 1 / 6, abs=0.03)
    assert coat.training == looks.training == 1
    together = [
        (0.5, {"coat": {"red": 1.0}, "hat": {"red": 1.0}}),
        (0.5, {"coat": {"blue": 1.0}, "hat": {"blue": 1.0}}),
    ]
    coat, _, looks = spreads_of(few, hues, together)
    assert coat.training == pytest.approx(coat.even, abs=0.05)
    assert looks.training == pytest.approx(1.5, abs=0.05)  # coat and hat go together
    coat, hat, looks = spreads_of(few, hues, [(1.0, {"coat": {"red": 1.0}})])
    assert coat.training == 1 and hat.training is looks.training is None


def test_attributes_of_different_prompts_may_share_a_name():
    batch = labelled([{"hue": value} for value in "rgrgxyxy"], ["a"] * 4 + ["b"] * 4)
    hues = [Attribute("hue", ("r", "g"), "a"), Attribute("hue", ("x", "y"), "b")]
    for spread in spreads_of(batch, hues):
        assert spread.value == pytest.approx(2)
        mixed = 2 * 4 / 16 * (2 * log(2) - 0.75 * log(3)) + 6 / 16 * log(2)
        assert log(spread.even) == pytest.approx(mixed, abs=0.03)


@pytest.mark.parametrize("content", ["{}", "[]", '[{"share": 1}]', '[{"share": 1, "values": 3}]'])
def test_a_damaged_mix_of_training_images_is_named(tmp_path, content):
    assert read_mix(tmp_path) is None
    (tmp_path / MIX).write_text(content)
    with pytest.raises(ValueError, match=f"{MIX} must be a list such as"):
        read_mix(tmp_path)


@pytest.mark.parametrize("name", ["demo-probe", "demo-faces-probe"])
def test_the_demos_mixes_are_of_their_probes_attributes(name):
    folder = SCRIPTS.parent / "assets" / name
    mix, probe = read_mix(folder), load_probe(folder)
    assert sum(share for share, _ in mix) == pytest.approx(1)
    for _, kind in mix:
        assert {k: [*p] for k, p in kind.items()} == probe.attributes
        assert all(sum(p.values()) == pytest.approx(1) for p in kind.values())


def test_a_probe_counts_its_attributes_without_a_file_and_knows_what_prompts_name(tmp_path):
    looks = [("coat", ["red", "blue"]), ("hat", ["red", "green"])]
    probe = Probe(["a"], looks, "{concept}, {coat} coat, {hat} hat")
    prompts = ["a, red hat", "a castle"]
    coat, hat = open_attributes(None, None, ProbeLabeler(probe), "cpu", prompts).attributes
    assert coat.named("a, red hat") is None and hat.named("a, red hat") == "red"
    assert not coat.is_for("a castle")
    file = tmp_path / "attributes.json"
    file.write_text('{"coat": "blue, red", "light": "dark, red"}')
    coat, light = open_attributes(file, None, ProbeLabeler(probe), "cpu", prompts).attributes
    assert coat.values == ("blue", "red") and coat.named("a, red hat") is None
    assert light.named("a, red hat") == "red"
