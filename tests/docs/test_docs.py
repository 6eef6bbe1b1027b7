"""The documentation: its code runs, its commands exist, and its links lead somewhere."""

import re
import shlex
from pathlib import Path

import click
import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from PIL import Image

from tests.helpers.batches_at_hand import sample_images, save_batch
from tests.helpers.tiny_encoders import save_dinov2
from vendi_guidance import SlidingWindow, VendiGuidance, VendiGuidedSDXLPipeline
from vendi_guidance.adapter.modular import DiversityStep
from vendi_guidance.commands import COMMANDS, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]
PAGES += sorted(DOCS.rglob("*.md"))

# pages whose code needs nothing from elsewhere, and those where small models take others' places
ALONE = ["docs/scores.md", "docs/evaluation.md", "docs/theory.md"]
WITH_MODELS = ["README.md", "docs/pipelines.md", "docs/dial.md"]


NUMBER = re.compile(r"(?<![\w.])\d*\.?\d+(?!\w)")


def blocks_of(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert blocks
    return blocks


@pytest.mark.parametrize("page", ALONE)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks_of(page))
    if page == "docs/scores.md":  # a quarter of the items and features
        code = re.sub(r"\b(?:\d{4}|[2-9]50|500)\b", lambda size: str(int(size[0]) // 4), code)
    exec(code, {})


def with_small_models(block, sdxl):
    """Code of a page, with a small SDXL and short calls."""
    smaller = {
        "stabilityai/stable-diffusion-xl-base-1.0": str(sdxl),
        "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS": str(ROOT / "assets" / "demo-pixart"),
        "facebook/dinov2-base": "dinov2",
        "(1024, 1024)": "(16, 16)",
        "torch.float16\n": "torch.float32\n",  # which every CPU computes in
        "cuda": "cpu",
        'image="dinov2", prompt="clip"': 'image="pixels", prompt="words"',
        "] * 8, ": "] * 2, num_inference_steps=3, ",
        "pipe(prompts, ": "pipe(prompts, num_inference_steps=3, ",
    }
    for long, short in smaller.items():
        block = block.replace(long, short)
    return block


@pytest.mark.parametrize("page", WITH_MODELS)
def test_the_code_of_a_page_runs_with_small_models(page, tiny_sdxl_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dinov2").mkdir()
    save_dinov2(tmp_path / "dinov2")
    (tmp_path / "out").mkdir()
    for name in ("plain", "guided"):
        save_batch(tmp_path / "out" / name, sample_images(8), [{"prompt": "a cat"}] * 8)
    stock = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)
    guided = VendiGuidedSDXLPipeline.from_pretrained(tiny_sdxl_folder)
    given = {
        "pipe": guided if page == "docs/dial.md" else stock,
        "stock": stock,
        "guidance": VendiGuidance(),
        "prompts": ["a cat", "a dog"],
        "photographs": [Image.new("RGB", (20, 30), color) for color in ("red", "blue")],
        "image_features": torch.randn(6, 4),
        "prompt_features": torch.randn(6, 3),
        "generator": torch.Generator(),
        "g": torch.Generator(),
    }
    names = {}
    for block in blocks_of(page):
        small, _, _ = with_small_models(block, tiny_sdxl_folder).partition("pipe = blocks.")
        exec(small, names := names | given)  # the rest loads a model from elsewhere
    if page == "docs/dial.md":
        assert (tmp_path / "waving.safetensors").exists()
    if page == "docs/pipelines.md":
        assert has_step(names["blocks"])


def has_step(block):
    return isinstance(block, DiversityStep) or any(map(has_step, block.sub_blocks.values()))


def test_the_code_of_every_page_is_run():
    pages = [str(page.relative_to(ROOT)) for page in PAGES if "```python\n" in page.read_text()]
    assert sorted(pages) == sorted([*ALONE, *WITH_MODELS])


def test_the_pages_are_short():
    words = {page.stem: len(page.read_text("utf-8").split()) for page in PAGES}
    readers = [it.stem for it in DOCS.glob("*.md") if it.stem != "releasing"]
    assert len(readers) <= 13 and sum(map(words.get, readers)) <= 15_000
    first_screen, _, _ = (ROOT / "README.md").read_text("utf-8").partition("## Install")
    assert words["README"] <= 900 and len(first_screen.split()) <= 250


def test_a_number_in_a_link_stands_in_the_section_that_it_leads_to():
    quoted = [it for page in PAGES for it in quotes(page)]
    assert len(quoted) > 10
    for link, target, anchor in quoted:
        known = set(map(float, NUMBER.findall(sections(target)[anchor])))
        assert known.issuperset(map(float, NUMBER.findall(link))), (link, target.name, anchor)


def test_a_window_takes_the_memory_that_the_table_of_costs_says():
    said = map(int, re.findall(r" (\d+) MB", sections(DOCS / "benchmarks.md")["what-a-call-costs"]))
    for latents, prompt, megabytes in zip((65_536, 262_144), (1280, 2048), said, strict=True):
        assert "float32" in str(SlidingWindow(300).dtype)
        assert 300 * (latents + prompt) * 4 / 1e6 == pytest.approx(megabytes, abs=0.5)


def command_lines():
    """Of the pages and of the commands' own help, by where they are."""
    group = click.Context(main)
    texts = {page.name: page.read_text("utf-8") for page in PAGES}
    texts |= {f"{name} --help": main.get_command(group, name).help for name in COMMANDS}
    texts["--help"] = main.help
    found = []
    for place, text in texts.items():
        text = text.replace("\\\n", " ")
        blocks = r"^ +(?:vendi-guidance|(?:accelerate launch|torchrun) .* -m vendi_guidance) (.*)$"
        lines = re.findall(blocks, text, re.MULTILINE)
        lines += re.findall(r"`vendi-guidance ([a-z]+ [^`]+)`", text)
        found += [(place, line) for line in lines]
    return found


@pytest.mark.parametrize(("place", "line"), command_lines())
def test_a_command_on_a_page_can_be_given(place, line, monkeypatch):
    name, *words = shlex.split(line, comments=True)
    command = main.get_command(click.Context(main), name)
    assert command is not None, f"{place}: there is no command {name}"
    for option in command.params:
        if option.name == "device":  # which this machine may not have
            monkeypatch.setattr(option, "callback", None)
    command.make_context(name, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_point_to_files_and_headings(page):
    assert broken_links(page) == []


def test_modules_and_tests_that_the_docs_name_exist():
    path = r"`((?:vendi_guidance|pipelines|scripts|tests|assets)/[\w/.-]*)`"
    named = {name for page in PAGES for name in re.findall(path, page.read_text())}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_table_of_constants_has_every_number_of_the_method():
    set_in_code = re.compile(r"^([A-Z_]+(?:, [A-Z_]+)*) = ([\d.e-]+(?:, [\d.e-]+)*)$", re.MULTILINE)
    in_code = set()
    for room in ("guidance", "adapter"):
        for file in (ROOT / "vendi_guidance" / room).rglob("*.py"):
            for names, values in set_in_code.findall(file.read_text("utf-8")):
                numbers = map(float, values.split(", "))
                in_code |= set(zip(names.split(", "), numbers, strict=True))
    section = sections(DOCS / "results.md")["constants"]
    named = re.findall(r"`([A-Z_]+)` (\d[\de.-]*\d|\d)", section)
    assert {(name, float(value)) for name, value in named} == in_code
    assert len(in_code) > 30


def broken_links(page):
    """The relative links of a page to files or headings that do not exist."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in sections(target)):
            broken.append(link)
    return broken


def sections(page):
    """Anchors of a page's headings, as GitHub makes them -> text below, lower headings included."""
    found = re.findall(r"(?ms)^(#+) ([^\n]+)(?=(.*?)(?:^(?!\1#)#|\Z))", without_code(page))
    return {re.sub(r"[^\w\- ]", "", it.lower()).replace(" ", "-"): text for _, it, text in found}


def quotes(page):
    """The text, page and anchor of links whose text has a number."""
    links = re.findall(r"\[([^][]*\d[^][]*)\]\(([^)\s#:]*)#([^)\s]+)\)", without_code(page))
    return [(text, page.parent / to if to else page, anchor) for text, to, anchor in links]


def without_code(page):
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
