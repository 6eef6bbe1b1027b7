"""A finished batch in, a report out: its numbers, its JSON, its picture."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from vendi_guidance import scores
from vendi_guidance.embedders import Looks, Probe, TextEmbedder
from vendi_guidance.evaluator import evaluate
from vendi_guidance.kernels import Cosine, Gaussian
from vendi_guidance.report import Evaluated, save_json, save_picture, score_table
from vendi_guidance.runs import Run

PROMPTS = ["cat", "cat", "cat", "dog", "dog", "dog"]
KERNELS = {"kernel_image": Gaussian(2.0), "kernel_prompt": Gaussian(0.5)}


class Pixels:
    """Features of pictures: their mean colour."""

    def embed(self, images):
        return torch.from_numpy(np.stack(images).mean(axis=(1, 2)) / 50)


class OneHot:
    """Features of prompts: one of two, at right angles."""

    def embed(self, prompts):
        return torch.stack([torch.eye(2)[0 if prompt == "cat" else 1] for prompt in prompts])


class Told(Probe):
    """A probe that knows what it sees."""

    def __init__(self, seen: Looks) -> None:
        super().__init__(["cat", "dog"], ["noto", "fluent"], ["light", "dark"])
        self.seen = seen

    def looks(self, images):
        return self.seen


SEEN = Looks(
    ["cat", "cat", "dog", "dog", "dog", "dog"],
    ["noto", "fluent", "noto", "noto", "noto", "noto"],
    ["dark", "dark", "dark", "dark", "light", "light"],
)


def images(count: int = 6) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [
        Image.new("RGB", (8, 8), tuple(rng.integers(256, size=3).tolist())) for _ in range(count)
    ]


def report_of(prompts=PROMPTS, **more):
    settings = {"image_embedder": Pixels(), "prompt_embedder": OneHot(), **KERNELS, **more}
    return evaluate(images(len(prompts)), prompts, **settings)


def test_the_report_holds_the_scores_of_the_features():
    report = report_of(seconds=[1, 2, 3, 1, 2, 3], probe=Told(SEEN), truncation=3)
    x, t = Pixels().embed(images()), OneHot().embed(PROMPTS)
    kernels = tuple(KERNELS.values())
    assert report.vendi == float(scores.vendi(x, kernels[0], truncation=3))
    assert report.rke == float(scores.rke(x, kernels[0]))
    assert report.conditional_vendi == float(scores.conditional_vendi(x, t, *kernels, truncation=3))
    assert report.conditional_rke == float(scores.conditional_rke(x, t, *kernels))
    assert report.fidelity == pytest.approx(5 / 6)
    assert report.looks_by_prompt == {"cat": 2, "dog": 2}
    assert report.looks_per_prompt == 2
    assert report.seconds_per_image == 2
    assert (report.images, report.prompts, report.judged) == (6, 2, 6)


def test_the_report_says_with_what_settings_it_was_made():
    settings = report_of(truncation=4, kernel_prompt=Cosine()).as_dict()["settings"]
    assert settings == {
        "image_embedder": "Pixels",
        "prompt_embedder": "OneHot",
        "kernel_image": {"name": "Gaussian", "sigma": 2.0},
        "kernel_prompt": {"name": "Cosine"},
        "truncation": 4,
    }


def test_without_a_probe_or_a_known_concept_fidelity_and_looks_are_left_out():
    for report in (report_of(), report_of(prompts=["castle"] * 6, probe=Told(SEEN))):
        assert report.judged == 0
        assert report.fidelity is None
        assert report.looks_per_prompt is None
        assert report.looks_by_prompt == {}
        assert report.seconds_per_image is None


def test_only_known_concepts_are_judged():
    report = report_of(
        prompts=["cat", "cat", "castle", "castle", "DOG, asleep", "dog"], probe=Told(SEEN)
    )
    assert report.judged == 4
    assert report.fidelity == 1
    assert report.looks_by_prompt == {"cat": 2, "DOG, asleep": 1, "dog": 1}


def test_mismatched_numbers_are_refused():
    embedders = {"image_embedder": Pixels(), "prompt_embedder": OneHot(), **KERNELS}
    with pytest.raises(ValueError, match="got 3 images and 2 prompts"):
        evaluate(images(3), ["cat", "dog"], **embedders)
    with pytest.raises(ValueError, match="got 2 images and 3 times"):
        evaluate(images(2), ["cat", "dog"], seconds=[1, 2, 3], **embedders)
    with pytest.raises(ValueError, match="no images"):
        evaluate([], [], **embedders)


def evaluated(name: str, **more) -> Evaluated:
    rows = [{"file_name": f"{i}.png", "prompt": prompt} for i, prompt in enumerate(PROMPTS)]
    return Evaluated(name, Run(None, rows, images()), report_of(**more))  # type: ignore[arg-type]


def test_the_json_file_is_versioned_and_holds_every_run(tmp_path):
    file = tmp_path / "report.json"
    both = [evaluated("without", probe=Told(SEEN)), evaluated("with")]
    save_json(file, both, {"probe": "here"})
    content = json.loads(file.read_text())
    assert content["format"] == "vendi-guidance report"
    assert content["version"] == 1
    assert content["probe"] == "here"
    assert [run["name"] for run in content["runs"]] == ["without", "with"]
    assert content["runs"][0]["looks_by_prompt"] == {"cat": 2, "dog": 2}
    assert content["runs"][1]["fidelity"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_the_table_compares_two_runs():
    both = [evaluated("without", seconds=[1.0] * 6), evaluated("with", seconds=[1.5] * 6)]
    table = score_table(both)
    assert [column.header for column in table.columns] == ["score", "without", "with", "change"]
    cells = [list(column.cells) for column in table.columns]
    rows = dict(zip(cells[0], zip(*cells[1:], strict=True), strict=True))
    assert rows["seconds per image"] == ("1.000", "1.500", "x 1.50")
    assert rows["in-batch similarity"][2] == "+0.000"
    assert "prompt fidelity" not in rows  # known of neither run


@pytest.mark.parametrize("count", [1, 2])
def test_the_picture_is_drawn_for_one_run_and_for_two(tmp_path, count):
    file = tmp_path / "comparison.png"
    save_picture(file, [evaluated(f"run {i}", probe=Told(SEEN)) for i in range(count)])
    with Image.open(file) as picture:
        assert picture.width == pytest.approx(count * (8 * 72 + 30), abs=2)
        assert np.asarray(picture.convert("L")).std() > 1  # something is drawn


def test_the_picture_shows_odd_prompts_as_they_are(tmp_path):
    prompts = ["$\\frac{1$", "<b>" * 60, "two\nlines"]
    rows = [{"file_name": "", "prompt": prompt} for prompt in prompts]
    run = Run(tmp_path, rows, images(3))
    save_picture(tmp_path / "odd.png", [Evaluated("$", run, report_of(prompts=prompts))])
    assert (tmp_path / "odd.png").stat().st_size > 1000


def test_prompt_features_are_the_second_encoders_at_unit_length(tiny_sdxl_folder):
    from diffusers import StableDiffusionXLPipeline

    features = TextEmbedder.from_pretrained(tiny_sdxl_folder).embed(["cat", "a dog", "cat"])
    assert features.dtype == torch.float32
    assert torch.allclose(features.norm(dim=1), torch.ones(3))
    assert torch.equal(features[0], features[2])
    pipeline = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)
    pooled = pipeline.encode_prompt(["cat", "a dog"])[2].detach()
    assert torch.allclose(features[:2], torch.nn.functional.normalize(pooled), atol=1e-5)
