"""The watched network, on tiny pipelines of nearly every kind: repeated steps and scaled CFG."""

from contextlib import contextmanager
from functools import cache
from itertools import product
from types import SimpleNamespace

import diffusers
import pytest
import torch

from tests.helpers.tiny_pipelines import CASES, evaluations, with_scheduler
from vendi_guidance import VendiGuidance
from vendi_guidance.adapter.cfg import Evaluation, ScaledCFG
from vendi_guidance.adapter.denoiser import NETWORKS, Network
from vendi_guidance.adapter.levels import SCHEDULERS as KNOWN
from vendi_guidance.adapter.schedule import Watch

PROMPTS = [0, 1]
NO_PREDICTION = ["CogVideoX"]
NAMES = [name for name in CASES if name not in NO_PREDICTION]
WITH_CALLBACK = [name for name in NAMES if CASES[name].callback]
WITH_CFG = [name for name in WITH_CALLBACK if CASES[name].negative]
IN_TWO_EVALUATIONS = ["Flux", "Chroma", "Lumina2", "CogView4", "Qwen-Image", "Krea 2", "Wan"]
IN_TWO_EVALUATIONS += ["Qwen-Image 2.1", "Flux 2 Klein", "Ovis-Image"]
RESCALED = ["Lumina2", "Qwen-Image"]  # CFG that keeps a norm is not linear in its scale
# a layer left out is a second evaluation, of the prompts alone, from the second step on
SKIPPING = ("SD3", {"skip_guidance_layers": [0], "skip_layer_guidance_stop": 1.0})
# tokens that could be taken for rows: there are 4 of each
FOUR = torch.randn(4, 4, 16, generator=torch.Generator().manual_seed(3))
AS_MANY_AS_ROWS = {"prompt_embeds": [*FOUR[:2]], "negative_prompt_embeds": [*FOUR[2:]]}
OTHERS = ("FlowMatch", "DPMSolverSDE")  # of other models, or of another package
SCHEDULERS = [name.removesuffix("Scheduler") for name in KNOWN if not name.startswith(OTHERS)]


@cache
def pipeline(name):
    return CASES[name].make()


def module_of(pipe):
    return next(getattr(pipe, name) for name in NETWORKS if getattr(pipe, name, None) is not None)


@contextmanager
def watching(pipe, cfg=1.0, undistilled=None):
    """A network whose CFG has this share from the second step on."""
    with Watch(pipe.scheduler) as watch, Network(pipe, watch, undistilled) as network:
        network.cfg.share = cfg
        yield network, watch


def call(name, pipe=None, at_step=None, guided=True, **more):
    """Latents of a call; `at_step(index, latents)` may return others."""

    def callback(pipe, index, timestep, tensors):
        changed = at_step(index, tensors["latents"])
        return tensors if changed is None else {**tensors, "latents": changed}

    given = CASES[name].arguments(PROMPTS, guided=guided)
    if at_step is not None and CASES[name].callback:
        given["callback_on_step_end"] = callback
    elif at_step is not None:
        given["callback"] = lambda index, timestep, latents: at_step(index, latents)
    return (pipe or pipeline(name))(**given | more)[0]


def scaled(name, cfg, **how):
    with watching(pipeline(name), cfg):
        return call(name, **how)


def rows_evaluated(name, cfg, guided=True, **more):
    """By step, the rows of each evaluation of the network."""
    steps = []

    def at_step(index, latents):
        steps.append(rows.copy())
        rows.clear()

    pipe = pipeline(name)
    with watching(pipe, cfg), evaluations(module_of(pipe)) as rows:
        call(name, at_step=at_step, guided=guided, **more)
    return steps


def start_at(latents):
    """What a callback does so that the second step of a call starts at these latents."""
    return lambda index, _: latents if index == 0 else None


def repeated(name, pipe, **how):
    """By step, the prediction made again, and the step's own without CFG, which is off after the
    first step."""
    pairs = []

    def at_step(index, latents):
        pairs.append((network.denoise(watch.step.sample), network.denoised))

    with watching(pipe, cfg=0.0) as (network, watch):
        call(name, pipe, at_step, **how)
    return pairs


@pytest.mark.parametrize(("name", "guided"), list(product(NAMES, [False, True])))
def test_the_same_latents_give_the_same_prediction_without_cfg(name, guided):
    pairs = repeated(name, pipeline(name), guided=guided)
    assert pairs
    torch.testing.assert_close(*zip(*pairs, strict=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_every_scheduler_may_make_a_step_again(sdxl, kind):
    pipe = with_scheduler(sdxl, kind)
    for again, prediction in repeated("SDXL", pipe, guided=False, num_inference_steps=5):
        assert (again - prediction).norm() < 1e-5 * prediction.norm()


@pytest.mark.parametrize(
    ("name", "tokens"), [*((name, {}) for name in WITH_CFG), ("Z-Image", AS_MANY_AS_ROWS)]
)
def test_without_cfg_the_steps_after_the_first_are_those_of_an_unguided_call(name, tokens):
    seen = []
    found = scaled(name, 0.0, at_step=lambda index, latents: seen.append(latents), **tokens)
    expected = call(name, at_step=start_at(seen[0]), guided=False, **tokens)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert not torch.equal(found, call(name, **tokens))


@pytest.mark.parametrize(
    ("name", "more"), [SKIPPING, *((name, {}) for name in WITH_CFG if name not in RESCALED)]
)
def test_half_of_cfg_lies_halfway(name, more):
    more = {"num_inference_steps": 2, **more}
    none, half, full = (scaled(name, cfg, **more) for cfg in (0.0, 0.5, 1.0))
    torch.testing.assert_close(half, (none + full) / 2, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "name", ["SDXL", "SD3", "Sana", "Z-Image", "AnimateDiff", *IN_TWO_EVALUATIONS]
)
def test_steps_without_cfg_evaluate_the_rows_of_prompts_alone(name):
    [plain, *_] = rows_evaluated(name, 0.0, guided=False)
    for cfg in (0.0, 0.5):
        [first, *others] = rows_evaluated(name, cfg)
        assert sum(first) == 2 * sum(plain) and others == 2 * [first if cfg else plain]


def test_an_evaluation_keeps_what_its_pipeline_changes_afterwards():
    cfg, items = ScaledCFG(None, SimpleNamespace(key=1, steps=0)), {"image": 1}
    cfg.evaluate(Evaluation(None, lambda x, **_: x, {"x": torch.ones(2, 4), "joint": items}))
    items["image"] = 2  # Flux's negative image takes the place of the image
    assert cfg.evaluations[0].given["joint"] == {"image": 1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda latents: latents.flip(-1), "scales its latents in a way .* known: use"),
        (lambda latents: torch.ones(3, 4, 8, 8), "3 rows for 2 samples"),
    ],
)
def test_inputs_that_a_pipeline_changes_are_refused(changed, message):
    def at_step(index, latents):
        [evaluation] = network.cfg.evaluations
        given = evaluation.given | {"sample": changed(evaluation.given["sample"])}
        network.cfg.evaluations[0] = evaluation._replace(given=given)
        network.denoise(watch.step.sample)

    pipe = pipeline("SDXL")
    with watching(pipe) as (network, watch), pytest.raises(ValueError, match=message):
        call("SDXL", pipe, at_step, guided=False)
    with pytest.raises(ValueError, match="its network is not evaluated between two steps"):
        network.denoise(torch.ones(1))


def test_no_rounds_are_made_where_embeddings_are_layers_of_batches():
    kind = type("HiDreamPipeline", (diffusers.StableDiffusionXLPipeline,), {})
    pipe = kind(**pipeline("SDXL").components)
    with pytest.raises(ValueError, match=r"its embeddings are layers of batches: use .*published"):
        call("SDXL", pipe, num_inference_steps=12, **VendiGuidance().on(pipe))
