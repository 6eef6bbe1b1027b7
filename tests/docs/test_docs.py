"""The documentation: its code runs, its commands exist, and its links lead somewhere."""

import re
import shlex
from pathlib import Path

import click
import pytest
import torch
from diffusers import StableDiffusionXLPipeline
from PIL import Image

from tests.helpers.tiny_encoders import save_dinov2
from vendi_guidance import VendiGuidance, VendiGuidedSDXLPipeline
from vendi_guidance.adapter.modular import DiversityStep
from vendi_guidance.commands import COMMANDS, main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]
PAGES += sorted(DOCS.rglob("*.md"))

# pages whose code needs nothing from elsewhere, and those where small models take others' places
ALONE = ["docs/scores.md", "docs/evaluation.md", "docs/theory.md"]
WITH_MODELS = ["README.md", "docs/index.md", "docs/pipelines.md", "docs/dial.md"]


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
        exec(with_small_models(block, tiny_sdxl_folder), names := names | given)
    if page == "docs/dial.md":
        assert (tmp_path / "waving.safetensors").exists()


def test_the_code_about_modular_pipelines_guides_their_loops():
    def has_step(block):
        return isinstance(block, DiversityStep) or any(map(has_step, block.sub_blocks.values()))

    guiding, _, _ = "\n".join(blocks_of("docs/modular.md")).partition("pipe = ")  # loads a model
    exec(guiding, names := {})
    assert has_step(names["blocks"])


def test_the_code_of_every_page_is_run():
    pages = [str(page.relative_to(ROOT)) for page in PAGES if "```python\n" in page.read_text()]
    assert sorted(pages) == sorted([*ALONE, *WITH_MODELS, "docs/modular.md"])


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
        for file in (ROOT / "vendi_guidance" / room).glob("*.py"):
            for names, values in set_in_code.findall(file.read_text("utf-8")):
                numbers = map(float, values.split(", "))
                in_code |= set(zip(names.split(", "), numbers, strict=True))
    page = (DOCS / "theory.md").read_text("utf-8").partition("\n## Constants\n")[2]
    section = page.partition("\n## ")[0]
    named = re.findall(r"`([A-Z_]+)` (\d[\de.-]*\d|\d)", section)
    assert {(name, float(value)) for name, value in named} == in_code
    assert len(in_code) > 40


def broken_links(page):
    """The relative links of a page to files or headings that do not exist."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def anchors(page):
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code(page):
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
