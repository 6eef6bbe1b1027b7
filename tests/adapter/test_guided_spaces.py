"""Guidance in the denoised space, through a real pipeline and real schedulers."""

from types import SimpleNamespace

import diffusers
import pytest
import torch
from diffusers import EDMEulerScheduler, StableDiffusionXLPipeline

from vendi_guidance import Rounds
from vendi_guidance.adapter.callback import VendiGuidance

PROMPTS = ["a cat", "a cat", "two dogs"]
STEPS = 5  # DDIM's last one ends at no noise at all
SCHEDULERS = [
    "DDIM",
    "EulerDiscrete",
    "DPMSolverMultistep",
    "UniPCMultistep",
    "HeunDiscrete",
    "LCM",
    "EulerAncestralDiscrete",
]

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


@pytest.fixture(scope="module")
def pipeline(tiny_sdxl_folder):
    pipe = StableDiffusionXLPipeline.from_pretrained(tiny_sdxl_folder)
    pipe.set_progress_bar_config(disable=True)
    pipe.stock_config = pipe.scheduler.config
    return pipe


@pytest.fixture(params=SCHEDULERS)
def any_pipeline(request, pipeline):
    return with_scheduler(pipeline, request.param)


@pytest.fixture
def ddim_pipeline(pipeline):
    return with_scheduler(pipeline, "DDIM")


def with_scheduler(pipe, name):
    pipe.scheduler = getattr(diffusers, f"{name}Scheduler").from_config(pipe.stock_config)
    return pipe


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def latents_of(pipe, generator=None, prompts=PROMPTS, **given):
    generator = generator or seeded()
    return pipe(
        prompts, num_inference_steps=STEPS, generator=generator, output_type="latent", **given
    ).images


class Spy:
    """A callback that passes on to guidance, and sees what comes in and goes out at each step."""

    def __init__(self, guidance):
        self.guidance = guidance
        self.before, self.after = [], []

    def __call__(self, pipe, index, timestep, tensors):
        self.before.append(tensors["latents"])
        tensors = self.guidance(pipe, index, timestep, tensors)
        self.after.append(tensors["latents"])
        return tensors

    @property
    def changed(self):
        pairs = zip(self.before, self.after, strict=True)
        return [index for index, pair in enumerate(pairs) if not torch.equal(*pair)]

    def run(self, pipe, on=True):
        """A call of the pipeline, with all that `on` does or as a plain callback."""
        inputs = [*self.guidance.tensor_inputs]
        if on:
            inputs = self.guidance.on(pipe)["callback_on_step_end_tensor_inputs"]
        return latents_of(
            pipe, callback_on_step_end=self, callback_on_step_end_tensor_inputs=inputs
        )


def denoised(**options):
    return VendiGuidance(
        **{"preset": "published", "scale": 0.2, "every": 1, "space": "denoised"} | options
    )


def test_every_scheduler_is_guided_and_left_as_it_was(any_pipeline):
    plain = latents_of(any_pipeline)
    guidance = denoised()
    guided = latents_of(any_pipeline, **guidance.on(any_pipeline))
    assert torch.isfinite(guided).all() and guidance.skipped == 0
    assert not torch.allclose(guided, plain, rtol=1e-2)
    assert len(guidance.window) == 3
    assert guidance.window.latent_shape == tuple(plain.shape[1:])
    assert "step" not in vars(any_pipeline.scheduler)
    again = latents_of(any_pipeline, **guidance.on(any_pipeline))
    assert not torch.allclose(again, guided) and len(guidance.window) == 6
    assert torch.equal(latents_of(any_pipeline), plain)


def test_the_first_step_is_guided_with_on_and_the_second_with_the_plain_callback(ddim_pipeline):
    for on, first in ((True, 0), (False, 1)):
        spy = Spy(denoised())
        for _ in range(2):
            spy.before, spy.after = [], []
            spy.run(ddim_pipeline, on)
            assert spy.changed == list(range(first, STEPS - 1))


@pytest.mark.parametrize(
    ("name", "every", "guided"),
    [
        ("DDIM", 2, [0, 2]),
        ("HeunDiscrete", 1, [1, 3, 5, 7]),  # two evaluations of the network are one step
        ("HeunDiscrete", 3, [1, 3, 7]),
        ("HeunDiscrete", 4, [1, 5]),
        ("UniPCMultistep", 1, [0, 1, 2, 3]),
    ],
)
@pytest.mark.parametrize("space", ["latent", "denoised"])
def test_a_step_that_would_be_lost_is_made_at_the_next_that_is_not(
    pipeline, name, every, guided, space
):
    spy = Spy(denoised(every=every, space=space))
    spy.run(with_scheduler(pipeline, name))
    assert spy.changed == guided


@pytest.mark.parametrize("space", ["latent", "denoised"])
def test_the_next_steps_go_on_from_the_change(any_pipeline, space):
    plain, spy = Spy(VendiGuidance(scale=0)), Spy(denoised(space=space, every=100))
    plain.run(any_pipeline)
    spy.run(any_pipeline)
    [at] = spy.changed
    left = [a - b for a, b in zip(spy.after[at:], plain.after[at:], strict=True)][:4]
    for difference in left[1:]:
        cosine = torch.nn.functional.cosine_similarity(difference.flatten(1), left[0].flatten(1))
        assert (cosine > 0.5).all()


def test_a_scheduler_without_a_known_prediction_is_refused_at_once(ddim_pipeline):
    guidance = denoised()
    latents_of(ddim_pipeline, **guidance.on(ddim_pipeline))
    before = guidance.window.features.clone()
    scheduler = EDMEulerScheduler()
    pipe = SimpleNamespace(scheduler=scheduler, num_timesteps=5)
    tensors = {"latents": torch.ones(1, 4, 2, 2), "prompt_embeds": torch.ones(1, 3, 3)}
    with pytest.raises(ValueError, match='EDMEulerScheduler: use preset="published", '):
        guidance.on(pipe)
    with pytest.raises(ValueError, match="EDMEulerScheduler"):
        guidance(pipe, 0, 0, tensors)
    with pytest.raises(ValueError, match="EDMEulerScheduler"), guidance.attached(pipe):
        pass
    with pytest.raises(ValueError, match="EDMEulerScheduler"):
        VendiGuidance(Rounds(space="latent", rounds=2)).on(pipe)
    assert torch.equal(guidance.window.features, before)
    assert "step" not in vars(scheduler)
    denoised(space="latent").on(pipe)
