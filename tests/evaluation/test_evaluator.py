"""Evaluation of a finished batch."""

import itertools
import json

import numpy as np
import pytest
import torch

from tests.helpers.batches_at_hand import (
    COLOURS,
    EMBEDDING,
    WORDS,
    greys,
    labels_of,
    prompts,
    report_of,
    sample_images,
    save_batch,
)
from vendi_guidance.evaluation import inputs
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.embedding import Embedding, ImageReader, embed_prompts
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.inputs import ScoreInputs, looks_by_group, prompt_fidelity
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.features.base import FromFunction, Labels
from vendi_guidance.kernels.standard import Cosine, Gaussian
from vendi_guidance.scores import functional as scores, references as fidelity
from vendi_guidance.scores.alignment import group_vendi, in_batch_similarity, pairwise_distance

KERNELS = EMBEDDING.kernel_image, EMBEDDING.kernel_prompt


def values(report) -> dict[str, float]:
    return {name: score.value for name, score in report.scores.items()}


def test_of_many_images_entropies_of_order_1_are_those_of_whole_prompts(monkeypatch):
    def scores_of(rows):
        batch = ScoreInputs(
            x[rows], Gaussian(1.5), t[rows], Gaussian(0.5), [names[i] for i in rows]
        )
        return batch.scores()

    x, t = torch.randn(60, 4), torch.eye(6).repeat_interleave(10, 0)
    names = [*map(str, t.argmax(1).tolist())]
    whole, parts = scores_of(range(60)), itertools.combinations(range(6), 4)
    four = [scores_of([i for i in range(60) if i // 10 in part]) for part in parts]
    monkeypatch.setattr(inputs, "MOST", 40)
    found = scores_of(range(60))
    assert found["conditional_rke"] == whole["conditional_rke"]
    for name in ("vendi", "conditional_vendi"):
        assert found[name] in [pytest.approx(it[name]) for it in four]


def test_every_score_is_that_of_the_features():
    reference = sample_images(20, seed=5)
    given = {"references": reference, "seconds": [1.0, 2.0, 3.0] * 8}
    report = report_of(24, truncation=3, group_size=3, **given)
    x, t = COLOURS.embed(sample_images(24)), WORDS.embed(prompts(24))
    real = COLOURS.embed(reference)
    expected = {
        "in_batch_similarity": in_batch_similarity(x, prompts(24)),
        "pairwise_distance": pairwise_distance(x, prompts(24)),
        "group_vendi": group_vendi(x, prompts(24), 3),
        "kernel_distance": fidelity.kernel_distance(x, real),
        "frechet_distance": fidelity.frechet_distance(x, real),
        "seconds_per_image": 2.0,
        **fidelity.manifold_scores(x, real, 5)._asdict(),
    }
    for kind in ("", "conditional_", "information_"):
        of = (x, t, *KERNELS) if kind else (x, KERNELS[0])
        vendi, rke = (getattr(scores, f"{kind}{name}") for name in ("vendi", "rke"))
        expected |= {f"{kind}vendi": float(vendi(*of)), f"{kind}rke": float(rke(*of))}
        expected[f"truncated_{kind}vendi"] = float(vendi(*of, truncation=3))
    assert values(report) == pytest.approx(expected, rel=1e-5)


def test_as_many_reference_images_are_scored_against_the_others_for_comparison():
    reference = sample_images(60, seed=5)
    [note] = [one for one in report_of(24, references=reference).notes if "the others" in one]
    assert note.startswith("24 reference images against the others: kernel distance")
    real = COLOURS.embed(reference)[torch.randperm(60, generator=torch.Generator().manual_seed(0))]
    expected = fidelity.frechet_distance(real[:24], real[24:])
    assert f"Fréchet distance {expected:#.4g}," in note
    assert not any("the others" in one for one in report_of(24, references=reference[:10]).notes)


def test_what_decides_a_score_stands_beside_it():
    report = report_of(24, truncation=np.int64(3), references=sample_images(20))
    basis = {name: score.basis for name, score in report.scores.items()}
    assert basis["vendi"] == "colours none, Gaussian σ = 1; all eigenvalues, n = 24"
    assert "prompts by words, Gaussian σ = 0.3" in basis["conditional_vendi"]
    assert "t = 3" in basis["truncated_vendi"]
    assert json.loads(json.dumps(report.settings))["truncation"] == 3
    assert "20 references" in basis["recall"] and "k = 5" in basis["recall"]
    assert report.settings["kernel_image"] == {"name": "Gaussian", "sigma": 1.0}
    assert report.settings["image_embedder"] == {"name": "colours", "settings": {"weights": "none"}}
    usual = report_of(24, kernel_image=None)
    assert usual.settings["kernel_image"]["chosen"] == "median distance"
    assert "(median distance)" in usual.scores["vendi"].basis
    assert report_of(24, kernel_image=Cosine()).settings["kernel_image"] == {"name": "Cosine"}


def test_intervals_hold_the_scores_and_are_narrower_for_more_prompts():
    few, many = report_of(64), report_of(64, kernel_prompt=Gaussian(0.3), prompts=prompts(64, 32))
    assert few.settings["interval"] == {"level": 0.95, "drawn": "prompts"}
    for name in ("vendi", "conditional_vendi", "rke"):
        for report in (few, many):
            score = report.scores[name]
            assert 1 <= score.low < score.value < score.high
        assert score.high / score.low < few.scores[name].high / few.scores[name].low
    with_pictures = report_of(64, prompts=prompts(64, 2))
    assert with_pictures.settings["interval"]["drawn"] == "pictures"
    assert report_of(16, prompts=prompts(16, 2)).scores["vendi"].low is None


def test_labels_say_how_faithful_the_images_are():
    asked = ["cat"] * 8 + ["DOG, asleep"] * 8 + ["castle"] * 8
    labels = labels_of(asked, ["cat"] * 12 + ["dog"] * 12)
    report = report_of(24, prompts=asked, labels=labels)
    assert report.scores["fidelity"].value == pytest.approx(12 / 16)
    assert report.scores["looks_per_prompt"].value == 2
    assert report.settings["labeled"] == 16
    looks = {group.label: group.looks for group in report.analysis.groups}
    assert looks == {"cat": 2, "DOG, asleep": 2, "castle": None}
    unknown = report_of(24, prompts=["castle"] * 24, labels=labels._replace(asked=[None] * 24))
    assert "fidelity" not in unknown.scores
    clusters = labels._replace(variant=torch.arange(24) % 2)
    assert values(report_of(24, prompts=asked, labels=clusters))["looks_per_prompt"] == 2
    nothing = report_of(24, labels=Labels([""] * 24, ["", "a face"] * 12, [1] * 24))
    assert nothing.scores["fidelity"].value == 0.5  # a label too, of images that show nothing


def test_a_clip_score_is_the_mean_cosine_of_images_and_prompts():
    def of_texts(texts):
        return np.array([[0.0, 1.0] if "0" in text else [-1.0, 0.0] for text in texts])

    image_half = FromFunction(lambda images: np.tile([3.0, 4.0], (len(images), 1)), "clip")
    text_half = FromFunction(of_texts, "clip")
    score = report_of(64, clip=(image_half, text_half)).scores["clip_score"]
    assert score.value == pytest.approx(100 * 0.8 / 8)
    assert 0 <= score.low < score.value < score.high <= 100
    with pytest.raises(ValueError, match="must agree in d, got 2 and 16"):
        report_of(16, clip=(image_half, WORDS))
    with pytest.raises(ValueError, match="give the prompts too"):
        report_of(4, prompts=None, clip=(image_half, text_half))


def test_groups_come_from_the_least_to_the_most_diverse():
    images = sample_images(16, 2, kinds=1) + sample_images(16, 80, kinds=1, seed=1)
    report = evaluate(images, ["same"] * 16 + ["varied"] * 16, embedding=EMBEDDING)
    same, varied = report.analysis.groups
    assert (same.label, varied.label) == ("same", "varied")
    assert same.vendi == pytest.approx(1, abs=0.05) and varied.vendi > 2
    assert same.rows == tuple(range(16))


def test_near_duplicates_are_shown_by_the_names_of_their_files(tmp_path, monkeypatch):
    folder = save_batch(tmp_path / "grey", greys(0, 100, 100, 101, 250), [{"prompt": "a"}] * 5)
    report = evaluate(folder, embedding=EMBEDDING)
    first, *others = report.analysis.near_duplicates
    assert first == (1, 2, 1.0) and {pair[:2] for pair in others} == {(1, 3), (2, 3)}
    assert "Near-duplicates: 3 pairs;" in report.notes[-1]
    assert "1.png: a and 2.png: a: 1.000" in report.save(tmp_path / "out").read_text("utf-8")
    monkeypatch.setattr("vendi_guidance.evaluation.analysis.DENSE_UP_TO", 20)
    said = "Near-duplicates: at least 100 pairs in a random sample of 20 images; see"
    assert said in report_of(30, image=torch.ones(30, 2)).notes[-1]


def test_it_is_said_after_how_many_images_of_a_prompt_new_ones_repeat_old_ones(tmp_path):
    given = {"prompts": prompts(48, 3), "kernel_image": Cosine()}
    repeated, different = torch.eye(2).repeat(24, 1), torch.eye(48)
    for x, last, said in ((repeated, 2, "mostly repeat"), (different, 16, "still differ from")):
        page = report_of(48, image=x, **given).save(tmp_path).read_text("utf-8")
        run = json.loads((tmp_path / "report.json").read_text())["runs"][0]
        curve = run["convergence"]["within_prompt"]
        enough = [mean >= 0.9 * last for mean in curve["mean"]].index(True) + 1
        assert curve["reached"] == enough and curve["mean"][-1] == pytest.approx(last)
        words = f"{said} earlier ones: {enough} of 16 reach 90% of their Vendi score"
        assert any(words in note for note in run["notes"]) and "images of a prompt</text>" in page
    assert enough == 15  # of 16 that all differ


def test_scores_are_those_that_the_prompts_allow():
    report = evaluate(sample_images(24), embedding=EMBEDDING)
    assert set(report.scores) == {"vendi", "rke"}
    assert report.analysis.groups == [] and "prompts" not in report.settings
    report = report_of(24, prompts=[f"prompt {i}" for i in range(24)])  # none repeats
    assert report.analysis.groups == [] and "in_batch_similarity" not in report.scores


def test_one_image_and_images_that_are_all_alike_score_one():
    report = report_of(1)
    assert values(report) == pytest.approx(dict.fromkeys(report.scores, 1.0))
    assert report.scores["vendi"].low is None
    for level in (0, 1):  # all black, and white
        x = torch.full((30, 3), float(level))
        given = {"prompts": ["one"] * 30, "image": x, "kernel_image": None, "group_size": 4}
        report = report_of(30, **given)
        found, why = values(report), "(an image has zero features)"
        said = f"in-batch similarity {why}, in-group Vendi {why}."
        assert any(said in note for note in report.notes) == (not level)
        assert found.pop("in_batch_similarity", None) == (pytest.approx(1) if level else None)
        assert found.pop("pairwise_distance", 0) == pytest.approx(0)
        assert found == pytest.approx(dict.fromkeys(found, 1.0))


def test_features_that_cannot_be_scored_are_named():
    x = torch.randn(8, 3)
    x[5, 1] = float("nan")
    broken = FromFunction(lambda images: np.full((len(images), 2), np.inf), "broken")
    black = FromFunction(lambda images: np.zeros((len(images), 2)), "black")
    for image, kernel, words in (
        (x, None, r"the given features cannot be scored.*row 5"),
        (broken, None, "broken's features cannot be scored"),
        (torch.randn(7, 3), None, "have 7 rows, but there are 8"),
        (black, Cosine(), "row 0 is a zero vector"),
    ):
        with pytest.raises(ValueError, match=words):
            report_of(8, image=image, kernel_image=kernel)


def test_given_features_are_copied_as_they_are_and_never_compared_with_images():
    x, real = torch.randn(30, 5), torch.randn(9, 5)
    copies = {"image": x.clone(), "references": real.clone()}
    given = {"prompt": torch.randn(30, 4), "kernel_image": None}
    report = report_of(30, **copies, **given)
    for features in copies.values():
        features.zero_()
    assert torch.equal(report.inputs.x, x) and torch.equal(report.inputs.reference, real)
    assert report.settings["references"] == 9
    expected = scores.vendi(x, report.inputs.kernel_x)
    assert report.scores["vendi"].value == pytest.approx(float(expected))
    with pytest.raises(ValueError, match="so the reference images must be, too"):
        report_of(30, image=x, references=sample_images(24), **given)


def test_features_of_prompts_and_labels_of_a_file_that_cannot_be_read_are_left_out(tmp_path):
    for place, image in enumerate(sample_images(6)):
        image.save(tmp_path / f"{place}.png")
    (tmp_path / "2.png").write_bytes(b"no image")
    t, judges = torch.eye(6), Judges(labels=labels_of(["cat"] * 6, ["cat", "cat", "dog"] * 2))
    report = evaluate(tmp_path, prompts(6), judges=judges, embedding=Embedding(COLOURS, t))
    assert torch.equal(report.inputs.t, t[[0, 1, 3, 4, 5]])
    assert report.scores["fidelity"].value == 4 / 5 and report.settings["labeled"] == 5


def test_what_could_not_be_computed_or_was_cut_is_said(tmp_path):
    unknown = Labels([None] * 24, ["cat"] * 24, [""] * 24)
    huge = torch.randn(24, 3, dtype=torch.float64) * 1e60
    report = report_of(
        24, truncation=99, image=huge, kernel_image=None, references=huge, labels=unknown
    )
    said = " ".join(report.notes)
    assert "fidelity" not in report.scores and "kernel_distance" not in report.scores
    assert "Left out for 24 images and 24 reference images: " in said
    assert "kernel distance (not finite)" in said
    assert "prompt fidelity (prompts that ask for a known label)" in said
    assert "Truncation to 99 eigenvalues has no effect: 24 images have no more." in said
    report.save(tmp_path)
    assert said in " ".join(json.loads((tmp_path / "report.json").read_text())["runs"][0]["notes"])
    assert "kernel distance (not finite)" in (tmp_path / "report.html").read_text()
    half = report_of(24, labels=unknown._replace(asked=["cat"] * 12 + [None] * 12))
    assert any(note.startswith("Prompts of 12 of 24 images ask") for note in half.notes)
    rows = [{"prompt": "a", "seconds": 1.0}] * 23 + [{"prompt": "a"}]
    found = evaluate(save_batch(tmp_path / "a", sample_images(24), rows), embedding=EMBEDDING)
    assert any("seconds per image (all seconds)" in note for note in found.notes)


@pytest.mark.parametrize("given", [{"attributes": [Attribute("hair", ("brown", "black"))]}, {}])
def test_what_needs_prompts_is_refused_without_before_any_image_is_read(given):
    embedding = Embedding(FromFunction(None, "none"), "clip" if given else torch.eye(4))
    with pytest.raises(ValueError, match="give the prompts too"):
        evaluate(sample_images(4), judges=Judges(**given), embedding=embedding)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (Embedding, {"image": lambda images: COLOURS.embed(images)}, "FromFunction.*got <function"),
        (Embedding, {"prompt": [[1.0, 2.0]]}, r"an \(n, d\) tensor or array, got \[\[1.0, 2"),
        (Embedding, {"truncation": 0}, "truncation must be a whole number of at least 1, got 0"),
        (ImageReader, {"on_bad_image": "raise"}, "must be 'skip' or 'fail', got 'raise'"),
    ],
)
def test_what_features_cannot_come_from_is_refused_where_it_is_given(kind, given, words):
    with pytest.raises(ValueError, match=words):
        kind(**given)


def test_a_column_of_the_metadata_is_a_score_with_an_interval(tmp_path):
    rows = [{"prompt": p, "vqa": i / 32, "by": "me"} for i, p in enumerate(prompts(32))]
    folder = save_batch(tmp_path, sample_images(32), rows)

    def judged_by(column):
        judges = Judges(faithfulness=column)
        return evaluate(folder, judges=judges, embedding=EMBEDDING).scores["faithfulness"]

    score = judged_by("vqa")
    assert score.value == pytest.approx(sum(range(32)) / 32**2)
    assert score.low < score.value < score.high
    assert score.basis == "column vqa; n = 32"
    for name, words in (
        ("hps", "column 'hps' of 0.png is None, .* numeric columns are vqa"),
        ("by", "column 'by' of 0.png is 'me', not a finite number"),
    ):
        with pytest.raises(ValueError, match=words):
            judged_by(name)


@pytest.mark.parametrize(
    ("judge", "given", "words"),
    [
        ("faithfulness", [1.0] * 3, "numbers for faithfulness have 3 rows, but there are 24"),
        ("faithfulness", [float("nan")] * 24, "NaN"),
        ("faithfulness", ["good"] * 24, "must be numbers"),
        ("labels", labels_of(["cat"] * 3, ["cat"] * 3), "24 images and 3 asked labels: give one"),
        ("labels", (["cat"] * 24,) * 3, r"Labels\(asked, shown, variant\), got tuple"),
    ],
)
def test_what_is_not_a_number_or_label_for_each_image_is_refused(judge, given, words):
    with pytest.raises(ValueError, match=words):
        report_of(24, **{judge: given})


def test_each_distinct_prompt_is_embedded_once():
    seen = []
    embedder = FromFunction(lambda texts: seen.extend(texts) or torch.eye(len(texts)), "eye")
    features, _ = embed_prompts(["a cat", "a dog", "a cat"], embedder)
    assert seen == ["a cat", "a dog"] and torch.equal(features, torch.eye(2)[[0, 1, 0]])


def test_a_look_counts_once_and_only_on_an_image_of_what_was_asked():
    asked, others = ["ear"] * 5 + ["nose"] * 3, ["ear", "nose", "ear", "nose", "ear", "ear"]
    variant = ["dark", "dark", "round", "light", "light", "dark", "dark", "round"]
    labels = Labels(asked, ["ear", "ear", *others], variant)
    # ear: dark twice, round, light; the nose among them does not count
    assert looks_by_group(asked, labels) == {"ear": 3, "nose": 1}
    assert looks_by_group(["a nose"], Labels(["nose"], ["ear"], ["dark"])) == {"a nose": 0}
    assert prompt_fidelity(labels) == pytest.approx(5 / 8)
    # prompts that differ in what they leave open are counted apart
    labels = Labels(["ear"] * 3, ["ear"] * 3, ["dark", "dark", "light"])
    assert looks_by_group(["ear", "ear, dark", "ear"], labels) == {"ear": 2, "ear, dark": 1}
