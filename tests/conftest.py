"""Fixtures: session folders with a tiny SDXL, a LoRA of it and a tiny probe, random weights."""

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, StableDiffusionXLPipeline
from huggingface_hub import constants
from matplotlib.figure import Figure
from peft import LoraConfig, get_peft_model_state_dict
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from scripts.demo.emoji import CAPTION
from tests.helpers import tiny_unets as unets
from tests.helpers.browsing import PATIENCE
from tests.helpers.devices import OnDevice
from tests.helpers.tiny_folders import clip
from tests.helpers.tiny_pipelines import CASES
from tests.helpers.tiny_text import WIDTH
from vendi_guidance.features.probe import Probe
from vendi_guidance.guidance import choose
from vendi_guidance.guidance.ways import own_steps

SCRIPTS = Path(__file__).parents[1] / "scripts"
ASSETS = SCRIPTS.parent / "assets"

NO_CHROMIUM = "no Chromium. apt-get install chromium"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report how many tests were skipped without a browser; the progress dots hide it."""
    skipped = terminalreporter.getreports("skipped")
    count = sum(NO_CHROMIUM in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} browser tests not run: {NO_CHROMIUM}", yellow=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where tests compute, such as cuda")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--device") != "cpu":
        OnDevice(torch.device(config.getoption("--device"))).__enter__()
    config.addinivalue_line("markers", "slow: seconds long; `make quick` leaves it out")
    config.addinivalue_line("markers", "as_measured: networks are judged by their predictions")


@pytest.fixture(scope="session")
def tiny_sdxl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete SDXL with random weights for 16x16 pixels; a step takes milliseconds."""
    torch.manual_seed(0)
    pipeline = StableDiffusionXLPipeline(
        vae=unets.vae(),
        **clip(),
        **clip("_2", projects=True),
        unet=unets.unet(**unets.XL, cross_attention_dim=2 * WIDTH),
        scheduler=DDIMScheduler(
            beta_schedule="scaled_linear",
            beta_start=0.00085,
            beta_end=0.012,
            timestep_spacing="trailing",
            clip_sample=False,
        ),
        add_watermarker=False,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny-sdxl"
    pipeline.save_pretrained(folder)
    return folder


@pytest.fixture
def sdxl() -> StableDiffusionXLPipeline:
    """A smaller SDXL without text encoders and VAE, with the same weights each time."""
    return CASES["SDXL"].make()


@pytest.fixture(scope="session")
def tiny_lora_folder(tiny_sdxl_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA of the tiny SDXL's UNet, with random weights."""
    torch.manual_seed(0)
    pipeline = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)
    config = LoraConfig(r=2, target_modules=["to_q", "to_v", "conv1"], init_lora_weights=False)
    pipeline.unet.add_adapter(config)
    folder = tmp_path_factory.mktemp("models") / "tiny-lora"
    weights = get_peft_model_state_dict(pipeline.unet)
    pipeline.save_lora_weights(folder, unet_lora_layers=weights)
    return folder


@pytest.fixture(scope="session")
def tiny_probe_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A probe with random weights that knows "cat" and "dog"."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "tiny-probe"
    attributes = [("vendor", ["noto", "twemoji"]), ("tone", ["light", "dark"])]
    Probe(["cat", "dog"], attributes, CAPTION).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")  # beyond a module it would disturb tests with event loops
def browser() -> Iterator[Browser]:
    """Headless Chromium; skips the test if it is not installed."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if "CI" in os.environ:
            pytest.fail("there is no chromium, which .ci/run installs")
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, timeout=PATIENCE)
        yield started
        started.close()


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves figures as files of one pixel: rendering takes most of a report's time."""

    def save(figure: Figure, target: Any, format: str, **_: Any) -> None:
        if format == "svg":
            target.write("<svg></svg>")
        else:
            Image.new("RGB", (1, 1)).save(target, format)

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, in offline mode."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return cache


@pytest.fixture(scope="module", autouse=True)
def _known_prompts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Random networks, whose first predictions are noise, count as such that know their prompt
    without CFG, but in tests of the decision. For fixtures of a module too."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("as_measured") is None:
            patch.setattr(choose, "SPREAD", math.inf)
            patch.setattr(own_steps, "KNOWN_BELOW", 1e9)
            patch.setattr(own_steps, "VAGUE_ABOVE", 2e9)
        yield


@pytest.fixture
def far_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own steps move samples of tiny networks too, whose predictions at high noise are noise."""
    monkeypatch.setattr(own_steps, "KNOWN", 4.0)
