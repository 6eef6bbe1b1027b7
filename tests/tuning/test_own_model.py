"""The model that draws as a judge, on the demo model."""

import pytest
import torch

from vendi_guidance.evaluation.batches import Batch, as_batch
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.signals import Stop
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.assets import asset
from vendi_guidance.tuning.own_model import ALTERNATIVES, OwnModel

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
    return as_batch(runs.generate("guided", {"strength": 1.0}))


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
