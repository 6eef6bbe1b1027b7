"""Which prompts name what, and which concepts are for tuning."""

from collections import Counter

import pytest

from scripts.comparison.prompts import named_prompts, select, split_prompts, spread
from scripts.comparison.sampling import Prompt

CONCEPTS = [f"concept {row}" for row in range(32)]


def kind(prompt: Prompt) -> str:
    return f"{'tone' if prompt.tone else ''}{'vendor' if prompt.vendor else ''}"


def test_attributes_and_their_values_are_named_nearly_equally_often():
    prompts = named_prompts(CONCEPTS)
    assert [prompt.concept for prompt in prompts] == CONCEPTS
    assert Counter(map(kind, prompts)) == {"tone": 12, "vendor": 8, "tonevendor": 12}
    tones = Counter(prompt.tone for prompt in prompts if prompt.tone)
    vendors = Counter(prompt.vendor for prompt in prompts if prompt.vendor)
    assert set(tones.values()) == {4} and len(tones) == 6
    assert set(vendors.values()) == {6, 7} and len(vendors) == 3


def test_looks_that_are_named_in_full_differ():
    looks = [prompt[1:] for prompt in named_prompts(CONCEPTS) if None not in prompt]
    assert len(set(looks)) == len(looks) == 12


@pytest.mark.parametrize("count", [3, 4, 8, 12, 16])
def test_few_prompts_name_every_kind_too(count):
    assert set(map(kind, named_prompts(CONCEPTS[:count]))) == {"tone", "vendor", "tonevendor"}


def test_open_prompts_come_before_named_ones():
    prompts = select(CONCEPTS, 2, 4)
    assert [prompt.is_open for prompt in prompts.all] == [True] * 2 + [False] * 4
    assert prompts.open == ("concept 0", "concept 16")
    assert [prompt.concept for prompt in prompts.named] == spread(CONCEPTS, 4)
    assert len(select(CONCEPTS[:3], 8, 8).all) == 6


def test_a_prompt_says_what_it_names():
    assert Prompt("ear").words == "ear"
    assert Prompt("ear", "noto", "dark").words == "ear, dark skin tone, noto style"
    assert Prompt("ear").is_open and not Prompt("ear", tone="dark").is_open


def test_items_are_taken_evenly():
    assert spread("abcdefgh", 4) == ["a", "c", "e", "g"]
    assert spread("abc", 5) == ["a", "b", "c"]


def test_what_is_not_reported_is_for_tuning(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("leg\n\n ear \n")
    assert split_prompts(file, ["ear", "nose", "leg", "foot"]) == (["nose", "foot"], ["leg", "ear"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ear\ncat\n", r"knows no 'cat', which .*prompts.txt asks for"),
        ("ear\near\n", r"asks for 'ear' more than once"),
        ("ear\nleg\n", r"asks for 2 of the 2 concepts"),
        ("\n", r"asks for 0 of the 2 concepts"),
    ],
)
def test_prompts_that_cannot_be_split_are_refused(tmp_path, text, message):
    file = tmp_path / "prompts.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        split_prompts(file, ["ear", "leg"])
