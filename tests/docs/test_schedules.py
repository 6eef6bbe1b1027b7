"""The table of schedules, against its command, and pipelines that follow the schedules."""

import json
import re

import diffusers
import pytest

from scripts.docs.schedules import MODELS, PAGE, rows, schedule_of, with_table
from tests.adapter.test_denoiser import call, watching
from tests.docs.test_docs import ROOT, sections
from tests.helpers.tiny_pipelines import CASES

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

LIKE = {  # of each model, a tiny pipeline that sets its timesteps as the model's does
    **dict.fromkeys(["Stable Diffusion 1.5", "SD Turbo"], "SD 1.5"),
    **dict.fromkeys(["SDXL", "SDXL Turbo", "SDXL-Lightning"], "SDXL"),
    **dict.fromkeys(["LCM-LoRA (SDXL)", "DMD2 (SDXL)"], "SDXL"),
    **{"Kolors": "Kolors", "PixArt-Sigma": "PixArt-Sigma", "Sana 1.6B": "Sana"},
    **dict.fromkeys(["Stable Diffusion 3 medium", "Stable Diffusion 3.5 large turbo"], "SD3"),
    **dict.fromkeys(["FLUX.1 dev", "FLUX.1 schnell"], "Flux"),
    **{"FLUX.2 dev": "Flux 2", "FLUX.2 klein": "Flux 2 Klein", "Z-Image Turbo": "Z-Image"},
    **dict.fromkeys(["Qwen-Image", "Qwen-Image-Lightning"], "Qwen-Image"),
}
SMALL = 64  # pixels, as many tokens as the tiny pipelines have


def model_of(name, steps):
    [found] = [it for it in MODELS if (it["name"], it["steps"]) == (name, steps)]
    return found


def test_the_page_holds_what_the_command_writes():
    page = PAGE.read_text("utf-8")
    assert with_table(page, rows()) == page
    assert "| changed |" in with_table(page, "| changed |")


@pytest.mark.parametrize("model", MODELS, ids=lambda it: f"{it['name']}, {it['steps']}")
def test_levels_are_those_of_a_pipeline_with_the_models_scheduler(model):
    pipe = CASES[LIKE[model["name"]]].make()
    pipe.scheduler = getattr(diffusers, model["scheduler"])(**model["config"])
    found = []

    def at_step(index, latents):
        found.append(watch.levels[0].ratio)

    given = {"timesteps": model["timesteps"]} if "timesteps" in model else {}
    with watching(pipe) as (_, watch):
        steps = model["steps"]
        call(LIKE[model["name"]], pipe, at_step, False, num_inference_steps=steps, **given)
    assert schedule_of(model | {"size": SMALL}).starts == pytest.approx(found)


def test_the_table_of_costs_has_the_evaluations_of_known_models():
    section = sections(PAGE.with_name("benchmarks.md"))["what-a-call-costs"]
    row = re.compile(r"^\| (.+), (\d+) steps.* \| (\d+) \| \d+ \| (\d+) \|$", re.MULTILINE)
    models = {model["name"] for model in MODELS}
    known = [(name, *map(int, it)) for name, *it in row.findall(section) if name in models]
    assert len(known) == 3
    for name, steps, stock, in_rounds in known:
        schedule = schedule_of(model_of(name, steps))
        assert (schedule.evaluations, schedule.guided) == (stock, in_rounds), name


def test_the_table_of_costs_has_the_evaluations_of_the_demo_models():
    section = sections(PAGE.with_name("benchmarks.md"))["what-a-call-costs"]
    config = json.loads((ROOT / "assets/demo-sdxl/scheduler/scheduler_config.json").read_text())
    demo = {"name": "demo", "scheduler": config["_class_name"], "config": config}
    schedule = schedule_of(demo | {"steps": 16, "cfg": True, "latent": [4, 16, 16]})
    said = f"| {schedule.evaluations} | {schedule.evaluations} | {schedule.guided} |"
    assert f"| the demo models, 16 steps with CFG {said}" in section


def test_rounds_are_made_at_the_wanted_level_or_at_the_highest_of_training():
    names = "FLUX.1 schnell", "SDXL-Lightning"
    flow, trained_to = (schedule_of(model_of(name, steps=4)) for name in names)
    assert flow.wanted == flow.made == pytest.approx(0.2 * 512)
    assert trained_to.made == pytest.approx(14.6, abs=0.02)
    assert trained_to.wanted == pytest.approx(0.2 * 256)
    assert flow.step == trained_to.step == 0 and flow.evaluations == 4
