"""Selection of the most diverse of more images than are needed."""

import math
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from vendi_guidance import VendiGuidance
from vendi_guidance.comparison.entries import entries_of
from vendi_guidance.comparison.methods import Sample
from vendi_guidance.comparison.selection import (
    POOL_SEED_STEP,
    Select,
    median_gaussian,
    most_diverse,
)

EAR, LEG = "ear", "leg, dark skin tone"
FLAT = {name: Image.new("RGB", (64, 64), name) for name in ("red", "lime", "blue", "white")}


def test_the_kernel_is_gaussian_with_the_median_distance():
    full = median_gaussian(torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64))
    assert full[0].tolist() == pytest.approx([1, math.exp(-1 / 8), math.exp(-9 / 8)])
    copies = median_gaussian(torch.tensor([[0.0]] * 3 + [[1.0]], dtype=torch.float64))
    assert copies[0].tolist() == pytest.approx([1, 1, 1, math.exp(-1 / 2)])
    assert torch.equal(median_gaussian(torch.ones(3, 2)), torch.ones(3, 3))
    assert torch.equal(median_gaussian(torch.ones(1, 2)), torch.ones(1, 1))


def test_each_prompt_gets_the_most_diverse_of_its_own_images():
    images = [FLAT[name] for name in ("red", "red", "red", "blue", "lime", "red")]
    rows = most_diverse(images, ["a", "a", "b"])  # a: red, red, blue, lime; b: red, red
    assert len({images[row].getpixel((0, 0)) for row in rows[:2]}) == 2
    assert rows[2] == 2


class Generate:
    """A pipeline whose images are told by their seeds."""

    def __init__(self, colours: dict[int, str]) -> None:
        self.colours, self.calls = colours, []

    def __call__(self, samples, steps=None):
        self.calls.append((list(samples), steps))
        return [FLAT[self.colours.get(sample.seed, "red")] for sample in samples]


SAMPLES = [Sample(EAR, 7), Sample(EAR, 8), Sample(LEG, 9)]
OTHER = 8 + 2 * POOL_SEED_STEP


def test_a_pool_has_the_samples_own_seeds_and_others():
    generate = Generate({OTHER: "blue"})
    images = Select(pool=3).images(generate, SAMPLES)
    assert images == [FLAT["red"], FLAT["blue"], FLAT["red"]]
    drawn = [sample for samples, _ in generate.calls for sample in samples]
    assert generate.calls[0] == (SAMPLES, None)
    assert len({sample.seed for sample in drawn}) == len(drawn) == 9
    assert [sample.prompt for sample in drawn] == [EAR, EAR, LEG] * 3


def test_previews_take_few_steps_and_what_they_select_is_generated_from_the_same_seeds():
    generate = Generate({OTHER: "blue"})
    Select(pool=3, preview_steps=2).images(generate, SAMPLES)
    assert [steps for _, steps in generate.calls] == [2, 2, 2, None]
    assert [sample.seed for sample in generate.calls[-1][0]] == [7, OTHER, 9]


def test_a_pool_of_one_is_a_plain_call():
    generate = Generate({})
    assert len(Select(pool=1).images(generate, SAMPLES)) == 3
    assert generate.calls == [(SAMPLES, None)]


@pytest.mark.parametrize("name", ["guidance_scale", "true_cfg_scale"])
@pytest.mark.parametrize(("method", "scale"), [("select=4", 5), ("select=4:guidance_scale=2", 2)])
def test_candidates_are_generated_with_a_scale_of_cfg_of_their_own(method, scale, name):
    class Pipeline:
        guidance = VendiGuidance(diversity=0)

        def __call__(self, **given):
            assert given == arguments | {name: scale, "generator": given["generator"]}
            return SimpleNamespace(images=[FLAT["red"]])

    arguments = {"prompt": [EAR], "generator": [torch.Generator()], name: 5}
    sampler = entries_of([method])[1].sampler()
    assert sampler.generate(Pipeline(), arguments).images == [FLAT["red"]]
