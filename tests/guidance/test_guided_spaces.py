"""Guidance in the denoised space, and re-noising, through a real pipeline and real schedulers."""

from types import SimpleNamespace

import diffusers
import pytest
import torch
from diffusers import EDMEulerScheduler, StableDiffusionXLPipeline

from tests.guidance.test_prediction import X0, perfect_output, ready, stated_level
from vendi_guidance.guidance.callback import VendiGuidance
from vendi_guidance.guidance.prediction import Watch
from vendi_guidance.guidance.window import unit_rows

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


# Guidance ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("center", [None, "prompt"])
def test_every_scheduler_is_guided_and_left_as_it_was(any_pipeline, center):
    plain = latents_of(any_pipeline)
    guidance = denoised(center=center)
    guided = latents_of(any_pipeline, **guidance.on(any_pipeline))
    assert torch.isfinite(guided).all() and guidance.skipped == 0
    assert not torch.allclose(guided, plain, rtol=1e-2)
    assert len(guidance.window) == 3
    assert guidance.window.latent_shape == tuple(plain.shape[1:])
    assert "step" not in vars(any_pipeline.scheduler)
    again = latents_of(any_pipeline, **guidance.on(any_pipeline))
    assert not torch.allclose(again, guided) and len(guidance.window) == 6
    assert torch.equal(latents_of(any_pipeline), plain)


def test_at_scale_zero_the_pictures_are_the_stock_ones(any_pipeline):
    guidance = denoised(scale=0, renoise_stop=0.5)
    assert torch.equal(
        latents_of(any_pipeline, **guidance.on(any_pipeline)), latents_of(any_pipeline)
    )
    assert len(guidance.window) == 0


def test_the_first_step_is_guided_with_on_and_the_second_with_the_plain_callback(ddim_pipeline):
    for on, first in ((True, 0), (False, 1)):
        spy = Spy(denoised())
        for _ in range(2):
            spy.before, spy.after = [], []
            spy.run(ddim_pipeline, on)
            assert spy.changed == list(range(first, STEPS - 1))


def first_move(pipe, **options):
    """How far the first step moves each of three like samples, their norm, and the prediction."""
    spy, said = Spy(denoised(every=100, **options)), []
    inputs = spy.guidance.on(pipe)["callback_on_step_end_tensor_inputs"]

    def callback(pipe, index, timestep, tensors):
        said.append(watch.prediction)
        return spy(pipe, index, timestep, tensors)

    alike = torch.randn(1, 4, 8, 8, generator=seeded(1))
    latents = alike + 0.1 * torch.randn(3, 4, 8, 8, generator=seeded(2))
    with Watch(pipe.scheduler) as watch:
        latents_of(
            pipe,
            latents=latents,
            callback_on_step_end=callback,
            callback_on_step_end_tensor_inputs=inputs,
        )
    before, after = spy.before[0].flatten(1), spy.after[0].flatten(1)
    return (after - before).norm(dim=1), before.norm(dim=1), said[0]


@pytest.mark.parametrize("name", ["DDIM", "EulerDiscrete"])
def test_a_step_by_signal_is_a_share_of_the_clean_latents_in_the_noisy_ones(pipeline, name):
    pipe = with_scheduler(pipeline, name)
    options = {"objective": "rke", "scale": 0.01}
    adaptive, norm, prediction = first_move(pipe, step_rule="adaptive", **options)
    by_signal, _, _ = first_move(pipe, step_rule="signal", **options)
    share = prediction.signal * prediction.denoised.flatten(1).norm(dim=1) / norm
    assert torch.allclose(by_signal, share * adaptive, rtol=0.01)
    assert (adaptive > 0.005 * norm).all() and ((share - 1).abs() > 0.02).all()


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
        denoised(space="latent", renoise_stop=0.5).on(pipe)
    assert torch.equal(guidance.window.features, before)
    assert "step" not in vars(scheduler)
    denoised(space="latent").on(pipe)


# Re-noising -------------------------------------------------------------------------------------


class Recorder(Spy):
    """Also sees what the scheduler predicted."""

    def __call__(self, pipe, index, timestep, tensors):
        self.predicted = [] if index == 0 else self.predicted
        self.predicted.append(self.guidance._call._watch.prediction.denoised)
        return super().__call__(pipe, index, timestep, tensors)


def renoising(after=0.0, stop=1.0, **options):
    """No guidance, only renoising at some steps."""
    given = {"preset": "published", "objective": "rke", "start": 0, "stop": 0}
    return VendiGuidance(**given | {"renoise_start": after, "renoise_stop": stop} | options)


@pytest.mark.parametrize(("start", "stop"), [(0.0, 1.0), (0.5, 1.0), (0.0, 0.5)])
def test_what_was_predicted_gets_other_noise(ddim_pipeline, start, stop):
    guidance, stepped, generator = renoising(start, stop), [], seeded()
    scheduler = ddim_pipeline.scheduler
    own = scheduler.step
    scheduler.step = lambda *args, **given: stepped.append(args) or own(*args, **given)
    try:
        spy = Spy(guidance)
        guidance.on(ddim_pipeline, noise := seeded(5))
        latents_of(ddim_pipeline, generator, callback_on_step_end=spy)
    finally:
        del scheduler.step
    assert spy.changed == [i for i in range(STEPS - 1) if start <= i / STEPS < stop]
    twin = seeded(5)
    for index in spy.changed:
        drawn = torch.randn(spy.before[0].shape, generator=twin)
        clean = scheduler.step(*stepped[index]).pred_original_sample
        expected = scheduler.add_noise(clean, drawn, scheduler.timesteps[index + 1])
        torch.testing.assert_close(spy.after[index], expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(noise.get_state(), twin.get_state())


@pytest.mark.parametrize("space", ["denoised", "latent"])
@pytest.mark.parametrize("shrink", [0.25, 1.0])
def test_predictions_shrink_towards_the_mean_of_their_prompt(ddim_pipeline, space, shrink):
    options = {"objective": "conditional-rke", "sigma_prompt": 0.03, "space": space}
    guidance = renoising(renoise_shrink=shrink, **options)
    latents_of(ddim_pipeline, **guidance.on(ddim_pipeline, seeded(4)))
    remembered = guidance.window.features.clone()
    spy = Recorder(guidance)
    given = guidance.on(ddim_pipeline, seeded(5)) | {"callback_on_step_end": spy}
    latents_of(ddim_pipeline, **given)
    drawn = torch.randn(spy.before[0].shape, generator=seeded(5))
    x = spy.predicted[0].flatten(1)
    known = unit_rows(x)[None] if space == "latent" else torch.stack([unit_rows(x), remembered])
    cats, dogs = known[:, :2].mean((0, 1)), known[:, 2].mean(0)
    mean = torch.stack([cats, cats, dogs]) * x.norm(dim=1, keepdim=True)
    clean = (x + shrink * (mean - x)).view_as(drawn)
    scheduler = ddim_pipeline.scheduler
    expected = scheduler.add_noise(clean, drawn, scheduler.timesteps[1])
    torch.testing.assert_close(spy.after[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", [*SCHEDULERS, "DDPM", "TCD", "KDPM2Discrete", "KDPM2AncestralDiscrete"]
)
def test_renoising_keeps_the_level_of_noise(name):
    scheduler, timesteps = ready(name, {}, "epsilon")
    pipe = SimpleNamespace(scheduler=scheduler, num_timesteps=len(timesteps))
    guidance = renoising()
    guidance.on(pipe, seeded(9))
    torch.manual_seed(8)
    renewed, sample = 0, None
    for index, timestep in enumerate(timesteps):
        signal, noise = level = stated_level(scheduler, timestep)
        if sample is None:
            sample = signal * X0 + noise * torch.randn(X0.shape, dtype=X0.dtype)
        output = perfect_output("epsilon", (sample - signal * X0) / noise, level)
        stepped = scheduler.step(output, timestep, sample, return_dict=False)[0]
        prediction = guidance._call._watch.prediction
        sample = guidance(pipe, index, timestep, {"latents": stepped})["latents"]
        left = sample - prediction.signal * X0
        assert left.std().item() == pytest.approx(prediction.noise, rel=0.03, abs=1e-4)
        assert abs((left * X0).mean().item()) < 0.06 * prediction.noise + 1e-4
        renewed += not torch.equal(sample, stepped)
    assert renewed == 9  # of ten steps, some of two evaluations of the network


@pytest.mark.parametrize("name", SCHEDULERS)
def test_noise_is_that_of_the_generator(pipeline, name):
    pipe = with_scheduler(pipeline, name)

    def call(seed):
        return latents_of(pipe, **renoising().on(pipe, seeded(seed)))

    assert torch.equal(call(1), call(1))
    assert not torch.allclose(call(1), call(2), rtol=1e-2)


def test_with_a_generator_for_each_picture_batches_do_not_matter(any_pipeline):
    def call(pictures):
        generators = [seeded(picture) for picture in pictures]
        prompts = [PROMPTS[picture] for picture in pictures]
        given = renoising().on(any_pipeline, generators)
        return latents_of(any_pipeline, generators, prompts, **given)

    parts = torch.cat([call([0]), call([1, 2])])
    torch.testing.assert_close(call([0, 1, 2]), parts, rtol=1e-3, atol=1e-3)


def test_without_renoising_nothing_is_drawn(any_pipeline):
    noise = seeded(3)
    given = renoising(stop=0.0).on(any_pipeline, noise)
    assert torch.equal(latents_of(any_pipeline, **given), latents_of(any_pipeline))
    assert torch.equal(noise.get_state(), seeded(3).get_state())
