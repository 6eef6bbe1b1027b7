"""The nodes in ComfyUI's own server and page, with the demo model."""

import io
import json
import os
import re
from itertools import combinations
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pytest
from PIL import Image

from scripts.comfyui.page import EXAMPLES, open_example, run_example
from scripts.comfyui.server import EXAMPLE, as_prompt, serve
from vendi_guidance.guidance.ways.budget import USUAL

if "COMFYUI" not in os.environ:
    pytest.skip(
        "no ComfyUI: set COMFYUI to a clone, and run this with its Python", allow_module_level=True
    )

STEPS = 10
PROMPT, DIVERSE, SAMPLER, SAVED, SCORE = "2", "5", "6", "8", "9"


@pytest.fixture(scope="module")
def server():
    with serve(Path(os.environ["COMFYUI"])) as server:
        yield server


@pytest.fixture
def workflow(server):
    """The example as the API takes it, with few steps of a sampler that runs can cut."""

    def build(sampler=None, **inputs):
        prompt = as_prompt(EXAMPLE, server.get("/object_info"))
        prompt[PROMPT]["inputs"]["text"] = "waving hand"  # which the demo model knows: rounds
        prompt[DIVERSE]["inputs"] |= {"memory": "this batch"} | inputs
        few = {"steps": STEPS, "sampler_name": "euler", "scheduler": "sgm_uniform"}
        prompt[SAMPLER]["inputs"] |= few | (sampler or {})
        return prompt

    return build


def images(server, run):
    """(n, h, w, 3) that a run saved."""
    found = run.outputs[SAVED]["images"]
    read = [server.read(f"/view?{urlencode(one)}") for one in found]
    return np.stack([np.asarray(Image.open(io.BytesIO(one)), float) for one in read])


def test_the_example_runs_as_it_is(server):
    run = server.run(as_prompt(EXAMPLE, server.get("/object_info")))
    assert run.ends == "execution_success"
    assert len(images(server, run)) == 8
    assert "different images of 8" in run.outputs[SCORE]["text"][0]
    assert len(run.outputs[SCORE]["images"]) == 1


def test_the_progress_bar_moves_during_the_rounds(server, workflow):
    run = server.run(workflow({"seed": 1}))
    count = run.progress[-1][1]
    assert USUAL <= count - STEPS <= 2 * USUAL
    values = [value for value, _ in run.progress]  # newer servers leave some out
    assert {most for _, most in run.progress[1:]} == {count}
    assert values == sorted({*values}) and values[-1] == count
    assert any(STEPS / 2 < value < count - STEPS / 2 for value in values)


def test_an_interrupt_does_not_wait_for_the_rounds(server, workflow):
    asked = []

    def interrupt(run):
        if not asked and run.progress and run.progress[-1][0] >= 8:
            asked.append(server.post("/interrupt"))

    run = server.run(workflow({"seed": 2, "steps": 5}), interrupt)
    assert run.ends == "execution_interrupted" and run.progress[-1][0] < 5 + USUAL


@pytest.mark.parametrize("memory", ["session", "file"])
def test_a_lasting_memory_generates_other_images_from_a_fixed_seed(server, workflow, memory):
    first, second = (server.run(workflow({"seed": 3}, memory=memory)) for _ in range(2))
    assert {DIVERSE, SAMPLER}.isdisjoint(second.cached)
    assert abs(images(server, first) - images(server, second)).mean() > 1


@pytest.mark.parametrize("memory", ["session", "file"])
def test_a_saved_workflow_generates_its_image_again(server, workflow, memory):
    inputs = {"memory": memory, "memory_name": "again"}
    first, second, third = (server.run(workflow({"seed": 7}, **inputs)) for _ in range(3))
    made = images(server, second)
    [shown, *_] = second.outputs[SAVED]["images"]
    saved = Image.open(io.BytesIO(server.read(f"/view?{urlencode(shown)}")))
    prompt = json.loads(saved.text["prompt"])
    assert len(prompt[DIVERSE]["inputs"]["begin_with"]) == 64
    assert not np.array_equal(images(server, third), made)
    assert np.array_equal(images(server, server.run(prompt)), made)
    server.post("/vendi_guidance/forget", {"memory": memory, "name": "again", "node": DIVERSE})
    assert np.array_equal(images(server, server.run(prompt)), made)
    first_again = server.run(workflow({"seed": 7}, **inputs))
    assert np.array_equal(images(server, first_again), images(server, first))


def test_without_one_comfyui_answers_from_its_cache(server, workflow):
    server.run(workflow({"seed": 4}))
    assert {DIVERSE, SAMPLER} <= set(server.run(workflow({"seed": 4})).cached)


def test_wrong_inputs_are_refused_before_anything_is_executed(server, workflow):
    status, answer = server.post("/prompt", {"prompt": workflow(diversity=float("nan"))})
    [error, *_] = answer["node_errors"][DIVERSE]["errors"]
    assert status == 400 and "diversity must be between 0 and 1, got nan" in error["details"]


def advanced(prompt, node, cut, steps):
    """Cut a workflow's KSampler into two KSampler (Advanced)."""
    inputs = prompt[node]["inputs"]
    del inputs["denoise"]
    inputs["noise_seed"] = inputs.pop("seed")
    first = {"add_noise": "enable", "start_at_step": 0, "end_at_step": cut}
    first["return_with_leftover_noise"] = "enable"
    later = {"add_noise": "disable", "start_at_step": cut, "end_at_step": steps}
    later |= {"return_with_leftover_noise": "disable", "latent_image": ["first", 0]}
    prompt["first"] = {"class_type": "KSamplerAdvanced", "inputs": inputs | first}
    prompt[node] = {"class_type": "KSamplerAdvanced", "inputs": inputs | later}
    return prompt


@pytest.mark.parametrize("cut", [2, 6])  # of 8 steps, before the rounds' level and after it
def test_two_runs_of_ksampler_advanced_give_the_images_of_one(server, workflow, cut):
    settings = {"seed": 6, "steps": 8}
    one = server.run(workflow(settings))
    two = server.run(advanced(workflow(settings), SAMPLER, cut, 8))
    difference = abs(images(server, one) - images(server, two))
    assert difference.max() <= 2  # latents leave the first run scaled, and enter the second so


def test_the_template_browser_finds_a_title_and_a_thumbnail(server):
    assert server.get("/api/workflow_templates") == {"vendi-guidance": ["Diverse Batch"]}
    thumbnail = server.read(quote(f"{EXAMPLES}/Diverse Batch.jpg"))
    assert Image.open(io.BytesIO(thumbnail)).width == 1024


def saved_workflow(server):
    """The one in the last image that the page saved."""
    *_, last = server.get("/history").values()
    [shown, *_] = last["outputs"][SAVED]["images"]
    return json.loads(
        Image.open(io.BytesIO(server.read(f"/view?{urlencode(shown)}"))).text["workflow"]
    )


def older(workflow):
    """One of version 0.4.0's first layout of the node."""
    nodes = [
        node | {"widgets_values": node["widgets_values"][:4]}
        if str(node["id"]) == DIVERSE
        else node
        for node in workflow["nodes"]
    ]
    return workflow | {"nodes": nodes}


def value_in(page, workflow):
    """What the page has for `begin_with` once it has opened a workflow."""
    return page.evaluate(
        """async workflow => {
          await app.loadGraphData(workflow, true, true, 'again');
          const node = app.graph.nodes.find(n => n.type === 'VendiGuidanceDiverseBatch');
          return node.widgets.find(w => w.name === 'begin_with').value;
        }""",
        workflow,
    )


def test_the_page_shows_the_score_and_its_image_and_no_node_covers_another(server):
    api = pytest.importorskip("playwright.sync_api", reason="the page needs playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        page = browser.new_page()
        open_example(page, server)
        shown = run_example(page)
        saved = saved_workflow(server)
        values = [value_in(page, drawn) for drawn in (saved, older(saved))]
        browser.close()
    assert re.fullmatch("[0-9a-f]{64}|nothing", values[0]) and values[1] == ""
    assert "different images of 8" in shown["text"] and shown["images"] == 1
    for one, other in combinations(shown["boxes"], 2):
        beside = one["right"] <= other["left"] or other["right"] <= one["left"]
        above = one["bottom"] <= other["top"] or other["bottom"] <= one["top"]
        assert beside or above, (one, other)
