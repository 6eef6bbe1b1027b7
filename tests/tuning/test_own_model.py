"""The model that draws as a judge, on the demo model."""

from pathlib import Path

import pytest
import torch

from vendi_guidance.evaluation.batches import as_batch
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
        seed=0,
        output=folder,
        resume=True,
        device="cpu",
        dtype="float32",
    )
    return Sweep(options, Stop())


@pytest.fixture(scope="module")
def guided(runs) -> Path:
    return runs.generate("guided", {"strength": 1.0})


def test_the_model_recognises_what_it_drew_in_any_look(runs, guided):
    batch = as_batch(guided)
    judge = OwnModel(runs, PROMPTS)
    assert judge(list(batch.images), batch.prompts).tolist() == [1.0] * 6


def test_images_of_other_prompts_are_not_faithful(runs, guided):
    batch = as_batch(guided)
    others = batch.prompts[2:] + batch.prompts[:2]
    assert OwnModel(runs, PROMPTS)(list(batch.images), others).tolist() == [0.0] * 6


def test_a_verdict_does_not_depend_on_the_images_beside_it(runs, guided):
    batch = as_batch(guided)
    judge = OwnModel(runs, PROMPTS)
    asked = [[prompt, *judge.alternatives(prompt)] for prompt in batch.prompts]
    together = judge.errors(list(batch.images), asked)
    alone = torch.cat([judge.errors([batch.images[i]], [asked[i]]) for i in range(6)])
    assert torch.allclose(together, alone, rtol=1e-4)


def test_alternatives_are_as_many_for_each_prompt(runs):
    many = OwnModel(runs, [str(i) for i in range(9)])
    assert many.alternatives("8") == ["0", "1", "2", "3"] and ALTERNATIVES == 4
    assert OwnModel(runs, ["one"]).alternatives("one") == [""]
