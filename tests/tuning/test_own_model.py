"""The model that draws as a judge, on the demo model."""

import pytest
import torch
from PIL import Image

from tests.helpers.tiny_folders import save
from vendi_guidance.evaluation.batches import Batch, as_batch
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.signals import Stop
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.assets import asset
from vendi_guidance.tuning.own_model import ALTERNATIVES, STEPS, OwnModel

PROMPTS = ["ear", "waving hand", "nail polish"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Sweep:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "prompts.txt").write_text("\n".join(PROMPTS))
    options = RunOptions(
        prompts=str(folder / "prompts.txt"),
        model=str(asset("demo-sdxl")),
        steps=6,
        images_per_prompt=2,
        batch_size=3,
        output=folder,
        resume=True,
        dtype="float32",
    )
    return Sweep(options, Stop())


@pytest.fixture(scope="module")
def guided(runs) -> Batch:
    return as_batch(runs.generate("guided", {"diversity": 1.0}))


def test_the_model_recognises_what_it_drew_in_any_look_and_for_no_other_prompt(runs, guided):
    others = guided.prompts[2:] + guided.prompts[:2]
    for prompts, verdict in ((guided.prompts, 1.0), (others, 0.0)):
        assert OwnModel(runs, PROMPTS)(list(guided.images), prompts).tolist() == [verdict] * 6


def test_a_verdict_does_not_depend_on_the_images_beside_it(runs, guided):
    judge = OwnModel(runs, PROMPTS)
    asked = [[prompt, *judge.alternatives(prompt)] for prompt in guided.prompts]
    together = judge.errors(list(guided.images), asked)
    alone = torch.cat([judge.errors([guided.images[i]], [asked[i]]) for i in range(6)])
    assert torch.allclose(together, alone, rtol=1e-4)


def test_alternatives_are_as_many_for_each_prompt(runs):
    many = OwnModel(runs, [str(i) for i in range(9)])
    assert many.alternatives("8") == ["0", "1", "2", "3"] and ALTERNATIVES == 4
    assert OwnModel(runs, ["one"]).alternatives("one") == [""]


def test_a_model_whose_scale_of_1_is_with_cfg_judges_without_it_too(tmp_path):
    save("Z-Image", tmp_path / "model")
    size = {"height": 64, "width": 64, "dtype": "float32"}
    options = RunOptions(prompts="cat", model=str(tmp_path / "model"), output=tmp_path, **size)
    judge, rows = OwnModel(runs := Sweep(options, Stop()), ["cat", "dog"]), []
    count = lambda _, given: rows.append(len(given[0]))  # noqa: E731
    runs.pipe.transformer.register_forward_pre_hook(count)
    judge.errors([Image.new("RGB", (64, 64))] * 2, [["cat", "dog"]] * 2)
    assert rows == [4] * STEPS
