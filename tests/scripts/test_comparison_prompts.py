"""Which prompts name what, and which concepts are for tuning."""

from collections import Counter

import pytest
import torch

from scripts.comparison.prompts import Prompt, named_prompts, prompt, select, split_prompts
from scripts.demo.emoji import TONES, Emoji, load_sheets
from tests.helpers.emoji_prompts import asked, emoji_probe
from vendi_guidance.commands.cli import asset
from vendi_guidance.spacing import evenly_spaced

CONCEPTS = [f"concept {row}" for row in range(32)]
EMOJI = emoji_probe(CONCEPTS)
WORLD = Emoji(tuple(CONCEPTS), torch.zeros(32, 3, 6, 3, 1, 1, dtype=torch.uint8))


def named(concepts):
    return named_prompts(EMOJI, WORLD, concepts)


def kind(prompt: Prompt) -> str:
    _, vendor, tone = prompt.look
    return f"{'tone' if tone else ''}{'vendor' if vendor else ''}"


def test_attributes_and_their_values_are_named_nearly_equally_often():
    prompts = named(CONCEPTS)
    assert [prompt.concept for prompt in prompts] == CONCEPTS
    assert Counter(map(kind, prompts)) == {"tone": 12, "vendor": 8, "tonevendor": 12}
    tones = Counter(prompt.look[2] for prompt in prompts if prompt.look[2])
    vendors = Counter(prompt.look[1] for prompt in prompts if prompt.look[1])
    assert set(tones.values()) == {4} and len(tones) == 6
    assert set(vendors.values()) == {6, 7} and len(vendors) == 3


def test_the_demos_named_prompts_are_those_of_the_comparison():
    concepts = load_sheets(asset("demo-pictures")).concepts
    of_demo = asset("prompts/named.txt").read_text().splitlines()
    _, reported = split_prompts(asset("prompts/demo.txt"), concepts)
    assert [one.words for one in named_prompts(emoji_probe(concepts), WORLD, reported)] == of_demo


def test_looks_that_are_named_in_full_differ():
    looks = [prompt.look[1:] for prompt in named(CONCEPTS) if None not in prompt.look]
    assert len(set(looks)) == len(looks) == 12


def test_combinations_that_no_picture_shows_are_not_asked_for():
    class Rare(Emoji):
        def looks(self, concepts):
            return [look for look in super().looks(concepts) if look[2] != "dark"]

    prompts = named_prompts(EMOJI, Rare(WORLD.concepts, WORLD.pixels), CONCEPTS)
    assert {prompt.look[2] for prompt in prompts} == {None, *TONES[:-1]}


@pytest.mark.parametrize("count", [3, 4, 8, 12, 16])
def test_few_prompts_name_every_kind_too(count):
    assert set(map(kind, named(CONCEPTS[:count]))) == {"tone", "vendor", "tonevendor"}


def test_open_prompts_come_before_named_ones():
    prompts = select(EMOJI, WORLD, CONCEPTS, 2, 4)
    assert [prompt.is_open for prompt in prompts.all] == [True] * 2 + [False] * 4
    assert [prompt.words for prompt in prompts.open] == ["concept 0", "concept 16"]
    assert [prompt.concept for prompt in prompts.named] == evenly_spaced(CONCEPTS, 4)
    assert len(select(EMOJI, WORLD, CONCEPTS[:3], 8, 8).all) == 6


def test_a_prompt_says_what_it_names():
    probe = emoji_probe(["ear"])
    assert prompt(probe, "ear") == ("ear", ("ear", None, None))
    both = prompt(probe, "ear", vendor="noto", tone="dark")
    assert both == asked("ear", "noto", "dark")
    assert both.words == "ear, dark skin tone, noto style"
    assert prompt(probe, "ear").is_open and not prompt(probe, "ear", tone="dark").is_open


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
