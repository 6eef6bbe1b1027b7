"""Protocols and their tables."""

import pytest
import torch

from tests.helpers.batches_at_hand import sample_images
from vendi_guidance import Embedding, FromFunction, Judges, evaluate
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.benchmarks import BENCHMARKS, Asked
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.protocols import (
    PROTOCOLS,
    Features,
    attributes_of,
    check_batch,
    table_of_concepts,
    table_of_scores,
)

TEXTS = FromFunction(lambda texts: torch.eye(12)[[int(text.split()[1]) for text in texts]], "texts")


def report(each: int, **settings):
    prompts = [f"prompt {i}" for i in range(6) for _ in range(each)]
    images, embedding = sample_images(6 * each), Embedding("pixels:2", TEXTS)
    return evaluate(images, prompts, name="run", embedding=embedding, judges=Judges(**settings))


def test_every_protocol_has_a_benchmark_and_columns_that_are_scores():
    assert PROTOCOLS.keys() == BENCHMARKS.keys()
    for name, protocol in PROTOCOLS.items():
        assert {column.score for column in protocol.columns} <= MEASURES.keys()
        assert bool(protocol.columns) == (name != "dimcim")


def test_one_image_of_a_prompt_has_no_in_batch_similarity():
    table = table_of_scores("coco10000", [report(1)], [])
    [(_, values)] = table.rows
    assert values[-1] is None and values[2] is not None
    assert table.remarks[-1] == (
        "In-batch Sim. × 10² is missing: it needs several images a prompt."
    )
    assert "n = 6 images of 6 prompts, 0 pairs of one prompt" in table.settings
    # one of 24 images could not be read
    prompts = [f"prompt {i}" for i in range(6) for _ in range(4)][1:]
    run = evaluate(sample_images(23), prompts, embedding=Embedding("pixels:2", TEXTS))
    settings = table_of_scores("coco1000", [run], []).settings
    assert "n = 23 images of 6 prompts, 33 pairs of one prompt" in settings


def test_genevals_own_judgement_is_its_first_column():
    missing = table_of_scores("geneval", [report(4)], [])
    assert missing.rows[0][1][0] is None and "--faithfulness COLUMN" in missing.remarks[0]
    table = table_of_scores("geneval", [report(4, faithfulness=[1.0, 0.0, 1.0, 1.0] * 6)], [])
    assert table.headings[:2] == ("Method", "GenEval ↑") and table.rows[0][1][0] == 0.75
    assert table.source.startswith("Ghosh et al. (2023)")


def test_a_setting_like_the_protocols_is_no_difference():
    usual = PROTOCOLS["coco1000"].features
    assert usual.replaced_by(Features()) == (usual, [])
    assert usual.replaced_by(Features("dinov2", sigma_prompt=0.4)) == (usual, [])
    chosen, differs = usual.replaced_by(Features(sigma_image=20, prompt_embedder="sdxl:x"))
    assert chosen == Features("dinov2", 20, "sdxl:x", None, "clip")
    assert differs == [
        "sigma image 20 instead of 25.0",
        "prompt embedder sdxl:x instead of clip",
    ]
    given = Features("pixels", 25.0, "sdxl:x", 0.4)
    chosen, differs = usual.replaced_by(given)  # a bandwidth as the protocol's is kept
    assert chosen == Features("pixels", 25.0, "sdxl:x", 0.4, "clip") and len(differs) == 2


def test_a_batch_has_to_have_the_protocols_prompts_and_images():
    batch = as_batch(sample_images(12), [f"prompt {i}" for i in range(3) for _ in range(4)])
    check_batch("coco1000", batch, 3)
    for prompts, name in ((1000, "coco1000"), (3, "coco10000")):
        with pytest.raises(ValueError, match="has 3 prompts with 4 images each, and --protocol"):
            check_batch(name, batch, prompts)


def test_attributes_of_dimcim_are_of_the_prompts_that_were_drawn():
    asked = [
        Asked("dog", "color", "a dog", None),
        Asked("dog", "color", "a brown dog", "brown"),
        Asked("dog", "color", "a black dog", "black"),
        Asked("mug", "color", "a mug", None),
        Asked("mug", "color", "a red mug", "red"),
        Asked("mug", "color", "a blue mug", "blue"),
        Asked("mug", "shape", "a round mug", "round"),
    ]
    found, left_out = attributes_of(asked, {"a dog", "a brown dog"})
    [colour] = found.pop("dog")
    assert not found and left_out == ["mug shape is left out: it has one value only, round."]
    assert colour == Attribute(
        "dog color", ("brown", "black"), asked=(("a dog", None), ("a brown dog", "brown"))
    )
    assert colour.is_for("a dog") and not colour.is_for("a black dog")
    # a value counts as named where the file says so, whatever the text
    assert colour.named("a dog") is None and colour.named("a brown dog") == "brown"


def test_a_concept_without_dense_prompts_has_no_can_it():
    colour = Attribute("dog color", ("brown", "black"), asked=(("prompt 0", None),))
    dark = lambda images, *_: torch.tensor([[1.0, 0.0]] * len(images))  # noqa: E731
    judged = report(4, attributes=[colour], attribute_judge=dark)
    table = table_of_concepts([judged], {"dog": [colour]}, [], ["a remark"])
    assert table.rows == [("run", (0.0, 0.5, None)), ("run: dog", (0.0, 0.5, None))]
    assert table.remarks == ["a remark"]
