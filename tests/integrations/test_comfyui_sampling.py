"""The wrapper of ComfyUI's samplers, with the arguments that ComfyUI 0.3.64 gave it."""

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import diffusers
import pytest
import torch

from integrations.comfyui import memory as memories, sampling
from integrations.comfyui.memory import MemoryStore
from integrations.comfyui.sampling import DiverseSampling, features_of_conds
from integrations.comfyui.schedule import keep_schedule
from tests.adapter.test_mixins import PROMPTS, generate, make
from tests.helpers.tiny_pipelines import CASES
from vendi_guidance import Gaussian, SlidingWindow, VendiGuidance, vendi
from vendi_guidance.guidance import noise
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.samples import unit_rows
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.ways import budget

SHAPE = (8, 4, 4, 4)
SIGMAS = torch.tensor([14.6, 6.0, 2.2, 1.1, 0.9, 0.5, 0.2, 0.0])
AT = 2  # their level is 0.2 sqrt(4 * 4 * 4) = 1.6, so the rounds repeat the step from 2.2 to 1.1
CFG = 5.0
EVALUATIONS = budget.USUAL
"""Of the rounds: steps with less CFG leave fewer."""


class Noise:
    """Mixes noise and latents as models that predict noise do."""

    sigma_max = torch.tensor(14.6)

    @staticmethod
    def noise_scaling(sigma, noise, latent_image, max_denoise=False):
        return noise * sigma + latent_image


class Velocity:
    """As models that predict velocities do."""

    sigma_max = torch.tensor(1.0)

    @staticmethod
    def noise_scaling(sigma, noise, latent_image, max_denoise=False):
        return sigma * noise + (1 - sigma) * latent_image


class Guider:
    """Evaluates a model whose images have black and white channels; CFG makes them white.
    `overrides` maps a sigma to CFG there, as *CFGOverride* does, or to None."""

    def __init__(self, sampling=Noise, cfg=CFG, overrides=lambda sigma: None):
        self.inner_model = SimpleNamespace(model_sampling=sampling)
        self.conds = {"positive": [{"pooled_output": torch.ones(1, 3)}]}
        self.cfg, self.seen, self.overrides = cfg, [], overrides

    @property
    def sigmas(self):
        """Of each evaluation."""
        return [sigma for sigma, _ in self.seen]

    def __call__(self, x, sigma, model_options=None, seed=None):
        before, override = self.cfg, self.overrides(float(sigma[0]))
        self.cfg = before if override is None else override
        try:
            return self.predict_noise(x, sigma, model_options, seed)
        finally:
            self.cfg = before

    def predict_noise(self, x, sigma, model_options=None, seed=None):
        return self.evaluate(x, sigma)

    def evaluate(self, x, sigma):
        self.seen.append((float(sigma[0]), self.cfg))
        evidence = 4 * x.mean(dim=(2, 3), keepdim=True) / sigma[0]
        return (2 * torch.sigmoid(evidence + self.cfg / 2) - 1).expand(x.shape)


class Sampler:
    """ComfyUI's KSAMPLER, which scales the noise and leaves the rest to a function; and the
    executor of what wraps it."""

    def __init__(self, function):
        self.sampler_function = function
        self.class_obj = self

    def __call__(self, model_wrap, sigmas, extra_args, callback, noise, latents, *_):
        x = model_wrap.inner_model.model_sampling.noise_scaling(sigmas[0], noise, latents)
        steps = len(sigmas) - 1
        told = callback and (
            lambda state: callback(state["i"], state["denoised"], state["x"], steps)
        )
        how = {"extra_args": extra_args, "callback": told, "disable": True}
        return self.sampler_function(model_wrap, x, sigmas, **how)


class Masking(Sampler):
    """ComfyUI's KSAMPLER as it inpaints: the left half of each image is kept."""

    def __call__(self, model, sigmas, extra_args, *others):
        mask = torch.ones(SHAPE)
        mask[..., :2] = 0

        def inpaint(x, sigma, denoise_mask, **options):
            return model(x, sigma, **options) * denoise_mask + (1 - denoise_mask) / 2

        inpaint.inner_model = model.inner_model
        return super().__call__(inpaint, sigmas, {**extra_args, "denoise_mask": mask}, *others)


def euler(model, x, sigmas, extra_args, callback=None, disable=None, churn=0.0):
    noise = torch.Generator().manual_seed(extra_args["seed"])
    for i in range(len(sigmas) - 1):
        denoised = model(x, sigmas[i].expand(len(x)), **extra_args)
        if callback:
            callback({"i": i, "x": x, "denoised": denoised})
        x = denoised + (x - denoised) * sigmas[i + 1] / sigmas[i]
        x = x + churn * sigmas[i + 1] * torch.randn(x.shape, generator=noise)
    return x


def heun(model, x, sigmas, extra_args, callback=None, disable=None):
    for i in range(len(sigmas) - 1):
        denoised = model(x, sigmas[i].expand(len(x)), **extra_args)
        slope = (x - denoised) / sigmas[i]
        ahead = x + slope * (sigmas[i + 1] - sigmas[i])
        if sigmas[i + 1] > 0:
            after = model(ahead, sigmas[i + 1].expand(len(x)), **extra_args)
            slope = (slope + (ahead - after) / sigmas[i + 1]) / 2
        x = x + slope * (sigmas[i + 1] - sigmas[i])
    return x


def ahead_of_the_model(model, x, sigmas, extra_args, callback=None, disable=None):
    """A sampler that puts a hook of its own into the model, as CFG++ does."""
    model_options = {**extra_args["model_options"], "sampler_post_cfg_function": [print]}
    return euler(model, x, sigmas, {**extra_args, "model_options": model_options})


def writes_into_its_sigmas(model, x, sigmas, extra_args, callback=None, disable=None):
    """As uni_pc does."""
    samples = euler(model, x, sigmas.clone(), extra_args, callback)
    if sigmas[-1] == 0:
        sigmas[-1] = 0.001
    return samples


@pytest.fixture(autouse=True)
def _new_session(monkeypatch, tmp_path_factory):
    folder = SimpleNamespace(name=tmp_path_factory.mktemp("session"))
    monkeypatch.setattr(memories, "_session", folder)


def noise_of(seed):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def memory(tmp_path, kind="this batch", name="test", **given):
    return MemoryStore(kind, name, tmp_path, images_in(tmp_path), **given)


def remembered(tmp_path):
    """The digests of all memories."""
    folders = Path(memories._session.name), tmp_path
    return {path.name: path.read_text() for it in folders for path in it.iterdir()}


def images_in(tmp_path):
    """The folder of images of a test."""
    return tmp_path.with_name(f"{tmp_path.name}-images")


def draw(where, guider=None, function=euler, seed=0, sigmas=SIGMAS, callback=None, **given):
    """Samples with rounds, where `where` says; without guidance for None."""
    options = given.get("model_options", {"transformer_options": {}})
    noise, latents = given.get("noise", noise_of(seed)), given.get("latents", torch.zeros(SHAPE))
    extra_args = {"model_options": options, "seed": seed}
    run = given.get("sampler") or Sampler(function)
    args = (guider or Guider(), sigmas, extra_args, callback, noise, latents, None, True)
    if where is None:
        return run(*args)
    how = given.get("undistilled"), given.get("show", lambda text: None)
    rounds = Rounds(proposal="gradient", diversity=given.get("diversity", 0.5))
    return (given.get("node") or DiverseSampling(rounds, where, *how))(run, *args)


def diversity(samples):
    return float(vendi(unit_rows(samples.flatten(1)), Gaussian(0.5)))


@pytest.mark.parametrize(
    ("function", "sampling", "sigmas"),
    [
        *((function, Noise, SIGMAS) for function in (euler, heun, ahead_of_the_model)),
        (euler, Velocity, SIGMAS / (1 + SIGMAS)),
    ],
)
def test_samples_differ_and_only_rounds_are_evaluated_besides(tmp_path, function, sampling, sigmas):
    """A sampler with hooks in the model does not take what the rounds predicted for its own."""
    guider, plain, how = Guider(sampling), Guider(sampling), {"function": function}
    samples = draw(memory(tmp_path), guider, sigmas=sigmas, **how)
    assert diversity(samples) > 1.5 * diversity(draw(None, plain, sigmas=sigmas, **how))
    expected, own = plain.sigmas, float(sigmas[AT])
    at = expected.index(own)
    expected[at:at] = [own] * (EVALUATIONS + (function is ahead_of_the_model))
    assert guider.sigmas == expected


def test_a_step_without_signal_is_not_guided_nor_is_an_image_whose_noise_is_sought(tmp_path):
    guider = Guider(Velocity)
    draw(memory(tmp_path), guider, sigmas=torch.tensor([1.0, 0.5, 0.0]))
    assert guider.sigmas.count(1.0) == 1
    given = {"sigmas": SIGMAS.flip(0).clamp(min=1e-4), "latents": noise_of(1)}  # FlipSigmas
    found = draw(memory(tmp_path, "file"), **given)
    assert torch.equal(found, draw(None, **given)) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("sampling", "sigma"), [(Noise, 3.0), (Velocity, 0.75)])
def test_the_model_predicts_at_a_level_that_is_skipped(tmp_path, monkeypatch, sampling, sigma):
    sigmas = SIGMAS if sampling is Noise else SIGMAS / (1 + SIGMAS)

    def modify(engine, step):
        network = step.network
        clean = network.denoise(step.latents, network.at(3.0))
        network.restart(clean, clean)
        return step

    monkeypatch.setattr(Engine, "modify", modify)
    guider = Guider(sampling)
    draw(memory(tmp_path), guider, sigmas=sigmas)
    seen = [pytest.approx(float(each)) for each in sigmas[:-1]]
    seen[AT:AT] = [seen[AT], pytest.approx(sigma)]  # then the sampler's own, of the new latents
    assert guider.sigmas == seen


def test_a_model_whose_sigmas_are_of_another_kind_is_refused(tmp_path, monkeypatch):
    class Squared(Noise):
        @staticmethod
        def noise_scaling(sigma, noise, latent_image, max_denoise=False):
            return noise * sigma**2 + latent_image

    monkeypatch.setattr(Engine, "modify", lambda engine, step: step.network.at(3.0))
    with pytest.raises(ValueError, match="ratio of 3 with type: disconnect Diverse Batch"):
        draw(memory(tmp_path), Guider(Squared), sigmas=SIGMAS**0.5)


@pytest.mark.parametrize("names", [["cfg"], ["cfg1", "cfg2"]])
def test_cfg_is_off_until_the_rounds_halved_after_them_and_off_at_low_noise(tmp_path, names):
    seen = []

    class Scaled(Guider):
        def evaluate(self, x, sigma):
            seen.append((float(sigma[0]), {getattr(self, name) for name in names}))
            return super().evaluate(x, sigma)

    guider = Scaled(cfg=1.0)
    vars(guider).update(dict.fromkeys(names, CFG))
    draw(memory(tmp_path), guider)
    before, after = seen[: AT + 1 + EVALUATIONS], seen[AT + 1 + EVALUATIONS :]
    assert all(scales == {1.0} for _, scales in before)
    half = 1 + Rounds.cfg * (CFG - 1)
    assert all(cfg == {half if sigma > budget.CFG_STOP else 1.0} for sigma, cfg in after)
    assert {getattr(guider, name) for name in names} == {CFG}


def test_near_0_the_dial_leaves_samples_as_they_are_with_all_of_cfg_down_to_low_noise(tmp_path):
    plain = Guider(overrides=lambda sigma: None if sigma > budget.CFG_STOP else 1.0)
    found = draw(memory(tmp_path), diversity=1e-12)
    torch.testing.assert_close(found, draw(None, plain), atol=1e-4, rtol=1e-4)


def first_steps_only(sigma):
    """CFG as Krea 2's workflow has it: at the first step only."""
    return 1.0 if sigma < 14.6 else None


def all_but_the_first(sigma):
    return CFG if sigma < 14.6 else None


@pytest.mark.parametrize(
    ("own", "overrides", "same_as"),
    [(CFG, first_steps_only, 1.0), (1.0, all_but_the_first, CFG), (CFG, lambda sigma: 1.0, 1.0)],
)
def test_cfg_is_what_is_evaluated_not_what_a_field_says(tmp_path, caplog, own, overrides, same_as):
    guiders = Guider(cfg=own, overrides=overrides), Guider(cfg=same_as)
    with caplog.at_level("INFO"):
        found = [draw(memory(tmp_path), guider) for guider in guiders]
    assert torch.equal(*found) and guiders[0].seen == guiders[1].seen
    assert guiders[0].cfg == own


def test_the_sampler_draws_other_noise_after_the_rounds_than_at_its_first_steps(tmp_path):
    drawn = []

    def churning(model, x, sigmas, extra_args, callback=None, disable=None):
        drawn.append(extra_args["seed"])
        return euler(model, x, sigmas, extra_args, churn=0.1)

    first, again = (draw(memory(tmp_path), function=churning) for _ in range(2))
    assert torch.equal(first, again)
    assert drawn[0] == 0 and drawn[1] not in (0, 1) and drawn[2:] == drawn[:2]


@pytest.mark.parametrize("kind", ["this batch", "session", "file"])
def test_a_seed_gives_the_same_samples_unless_the_memory_lasts(tmp_path, kind):
    first, second = (draw(memory(tmp_path, kind)) for _ in range(2))
    assert torch.equal(first, second) == (kind == "this batch")
    assert bool([*tmp_path.iterdir()]) == (kind == "file")
    assert torch.equal(first, draw(memory(tmp_path, kind, "another")))


def lone(seed):
    """The arguments of one image."""
    return {"noise": noise_of(seed)[:1], "latents": torch.zeros(1, *SHAPE[1:]), "seed": seed}


def about(prompt, bias=0.0):
    """A guider of a model with a prompt."""
    guider, network = Guider(), torch.nn.Linear(3, 3)
    network.bias.data.fill_(bias)
    guider.inner_model.diffusion_model = network
    guider.conds = {"positive": [{"pooled_output": torch.eye(3)[[prompt]]}]}
    return guider


@pytest.mark.parametrize("kind", memories.KINDS)
def test_one_image_is_stock_until_one_of_its_prompt_and_model_is_known(tmp_path, kind):
    said = []

    def one(seed, guider):
        stock = draw(None, plain := about(0), **lone(seed))
        found = draw(memory(tmp_path, kind), guider, show=said.append, **lone(seed))
        return torch.equal(stock, found) and guider.seen == plain.seen

    guiders = [about(0), about(0), about(1), about(0, 1)]
    first, again, other_prompt, other_model = (one(*each) for each in enumerate(guiders))
    assert first and ("as without this node" in said[0])
    assert again == (kind == "this batch")
    assert other_prompt == other_model == (kind != "file")  # a file holds all images of a kind
    found = [text.split()[-2:] for text in said]
    if kind == "this batch":
        assert all(text == sampling.ALONE for text in said)
    else:
        counts = "1211" if kind == "session" else "1234"
        assert found == [[count, "remembered"] for count in counts]
    memory(tmp_path, kind, "another").forget()
    assert one(5, about(0)) == (kind == "this batch")
    memory(tmp_path, kind).forget()
    assert one(6, about(0))


@pytest.mark.parametrize("size", [memories.SIZE, 3])
@pytest.mark.parametrize("kind", ["session", "file"])
def test_an_image_is_made_again_from_what_it_began_with(tmp_path, monkeypatch, kind, size):
    """In another process, with other images remembered; twice; and again with a second sampling."""
    monkeypatch.setattr(memories, "SIZE", size)
    monkeypatch.setattr(memories._window, "__defaults__", (size,))

    def made(run, name="test", **given):
        store = memory(tmp_path, kind, name, note=said.append, **given)
        return [draw(store, about(prompt), **inputs) for prompt, inputs in run]

    said = []
    runs = [[(0, lone(seed))] for seed in range(3)]
    runs += [[(0, {"seed": 3})], [(0, lone(4)), (1, {"seed": 5}), (0, {"seed": 6})]]
    first = [(made(run), said[-1]) for run in runs]
    texts = [text for _, text in first]
    assert texts[0] == memories.NOTHING and len(set(texts)) == len(runs)
    assert len(texts[-1].split()) == (2 if kind == "session" else 1)  # of two prompts
    files = sorted(path.name for path in images_in(tmp_path).glob("memory/*"))
    assert {f"{text[:64]}.safetensors" for text in texts[1:]} < {*files}
    memory(tmp_path, kind).forget()
    made([(0, {"seed": 9})], "another")
    kept = remembered(tmp_path)
    for run, (samples, text) in [*zip(runs, first, strict=True)] * 2:
        again = made(run, "another", begin_with=text)
        assert all(map(torch.equal, again, samples)) and said[-1] == text
    assert kept == remembered(tmp_path)
    assert len([*images_in(tmp_path).glob("memory/*")]) == len(files) + 1  # of "another"


@pytest.mark.parametrize("kind", ["session", "file"])
def test_a_missing_file_is_said_before_drawing_with_what_helps(tmp_path, caplog, kind):
    said = []
    stock, *_ = (draw(memory(tmp_path, kind, note=said.append), **lone(0)) for _ in range(3))
    first, second = said[1:]
    lost = images_in(tmp_path) / "memory" / f"{first}.safetensors"
    lost.unlink()
    for begin_with in (first, second):  # the second goes on from the first
        store = memory(tmp_path, kind, begin_with=begin_with)
        with pytest.raises(ValueError, match=f"needs {lost}: put it back, or clear begin_with"):
            draw(store, guider := Guider(), **lone(1))
        assert guider.seen == []
    guided = draw(memory(tmp_path, kind), **lone(0))  # away from the later ones, which are left
    assert not torch.equal(guided, stock)
    assert f"{lost} is gone" in caplog.text
    memory(tmp_path, kind).forget()
    assert torch.equal(draw(memory(tmp_path, kind, note=said.append), **lone(0)), stock)
    assert said[-1] == memories.NOTHING


def test_a_memory_that_an_image_began_with_is_of_its_size_and_model(tmp_path):
    said = []
    for seed in range(2):
        draw(memory(tmp_path, "session", note=said.append), **lone(seed))
    store = memory(tmp_path, "session", begin_with=said[-1])
    assert len(store.load("SimpleNamespace 4x4x4 3").window) == 1
    assert len(store.load("SimpleNamespace 4x8x8 3").window) == 0


def test_an_sdxl_image_takes_little_room(tmp_path):
    store = memory(tmp_path, "session")
    store.load("SDXL 4x128x128 2816")
    store.add([(torch.randn(1, 4, 128, 128), torch.randn(1, 2816))], "SDXL 4x128x128 2816")
    [file] = images_in(tmp_path).glob("memory/*")
    assert file.stat().st_size < 150_000


@pytest.mark.parametrize("function", [euler, writes_into_its_sigmas])
def test_a_file_holds_the_finished_samples(tmp_path, function):
    samples = draw(memory(tmp_path, "file"), function=function, sigmas=SIGMAS.clone())
    assert [*remembered(tmp_path)] == ["test SimpleNamespace 4x4x4 3 all.txt"]
    features = SlidingWindow.load(*images_in(tmp_path).glob("memory/*")).features.float()
    torch.testing.assert_close(features, unit_rows(samples.flatten(1)), atol=1e-3, rtol=0)


def test_a_damaged_file_is_said_before_drawing_and_an_unwritable_one_afterwards(tmp_path, caplog):
    samples = draw(memory(tmp_path, "file"))
    [path] = images_in(tmp_path).glob("memory/*")
    path.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=path.name):
        draw(memory(tmp_path, "file"), guider := Guider())
    assert guider.seen == [] and path.read_bytes() == b"no tensors"
    assert torch.equal(draw(memory(path, "file")), samples)
    [message] = caplog.messages
    assert "not remembered: " in message and str(path) in message


@pytest.mark.parametrize(
    ("at", "seen"), [(AT + 2, AT + 4), (AT + 1 + EVALUATIONS, AT + 2 + EVALUATIONS)]
)
def test_an_interrupted_run_ends_unremembered_and_leaves_the_sampler_as_it_was(tmp_path, at, seen):
    def interrupt(i, *_):
        if i == at:
            raise KeyboardInterrupt

    sampler, guider = Sampler(euler), Guider()
    with pytest.raises(KeyboardInterrupt):
        draw(memory(tmp_path, "file"), guider, sampler=sampler, callback=interrupt)
    assert len(guider.seen) == seen
    assert sampler.sampler_function is euler and guider.cfg == CFG
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("start", "latents"), [(0, torch.zeros(SHAPE)), (AT, torch.zeros(SHAPE)), (AT + 2, noise_of(5))]
)
def test_rounds_are_made_wherever_a_schedule_begins_and_are_counted(tmp_path, start, latents):
    """KSampler with denoise below 1: what begins at low noise is guided there."""
    told, guider, sigmas = [], Guider(), SIGMAS[start:]
    how = {"latents": latents, "callback": lambda i, *rest: told.append((i, rest[-1]))}
    draw(memory(tmp_path), guider, sigmas=sigmas, **how)
    steps = len(sigmas) - 1
    evaluations = min(EVALUATIONS, 2 * steps)
    count = steps + evaluations
    assert told == [(i, count) for i in range(count)] and len(guider.seen) == count
    assert guider.sigmas.count(float(SIGMAS[max(start, AT)])) == 1 + evaluations


def in_two_runs(where, sigmas, cut, runs=draw, **given):
    first = runs(where, sigmas=sigmas[: cut + 1], **given)
    return runs(where, sigmas=sigmas[cut:], noise=torch.zeros(SHAPE), latents=first, **given)


def with_copied_sigmas(where, sigmas, **given):
    """A run whose sampler is given copies of sigmas, as on a GPU."""
    guider = given["guider"]
    guider.model_options = {}

    def outer(noise, latents, sampler, sigmas, *others):
        options = {**guider.model_options, "transformer_options": {}}
        return draw(where, sigmas=sigmas.clone(), model_options=options, **given)

    outer.class_obj = guider
    return keep_schedule(outer, None, None, None, sigmas, None)


@pytest.fixture(params=[1.1, 1.5, 1.7, 3.0])
def sigmas(request):
    """Of a schedule that has a step near the rounds' level, 1.6."""
    return torch.tensor([14.6, 6.0, 4.0, request.param, 0.9, 0.5, 0.2, 0.0])


@pytest.mark.parametrize("runs", [draw, with_copied_sigmas])
@pytest.mark.parametrize("cfg", [1.0, CFG])
@pytest.mark.parametrize("cut", range(1, len(SIGMAS) - 1))
def test_two_runs_give_the_image_of_one(tmp_path, cut, sigmas, cfg, runs):
    one, two = Guider(cfg=cfg), Guider(cfg=cfg)
    expected = draw(memory(tmp_path), one, sigmas=sigmas)
    found = in_two_runs(memory(tmp_path, "file"), sigmas, cut, runs, guider=two)
    assert torch.equal(found, expected) and one.seen == two.seen
    [path] = images_in(tmp_path).glob("memory/*")
    assert len(SlidingWindow.load(path)) == len(found)  # the finished ones alone


@pytest.mark.parametrize("cfg", [1.0, CFG])
@pytest.mark.parametrize("cut", range(1, len(SIGMAS) - 1))
def test_in_two_runs_of_unrelated_schedules_rounds_are_made_once(
    tmp_path, caplog, cut, sigmas, cfg
):
    def apart(where, sigmas, **given):
        return draw(where, sigmas=sigmas.clone(), **given)

    with caplog.at_level("INFO"):
        in_two_runs(memory(tmp_path), sigmas, cut, apart, guider=Guider(cfg=cfg))
    assert caplog.text.count(" rounds at noise to signal") == 1


def test_noise_that_latents_bring_to_the_highest_level_is_no_earlier_runs(tmp_path):
    """DisableNoise. The level of the rounds, 16, is above the highest."""
    one, other, noise = Guider(), Guider(), torch.randn(2, 4, 40, 40)
    none = torch.zeros_like(noise)
    expected = draw(memory(tmp_path), one, noise=noise, latents=none)
    found = draw(memory(tmp_path), other, noise=none, latents=SIGMAS[0] * noise)
    assert torch.equal(found, expected) and one.seen == other.seen
    assert len(one.seen) > len(SIGMAS)


POOLED, TOKENS = torch.rand(1, 3), torch.rand(1, 7, 3)
ONE = {"pooled_output": POOLED, "cross_attn": TOKENS}
OTHER = {"pooled_output": None, "cross_attn": TOKENS}
SEVERAL = torch.rand(3, 5)


@pytest.mark.parametrize(
    ("conds", "expected"),
    [
        ({"positive": [ONE]}, POOLED),
        ({"positive": [OTHER]}, TOKENS.mean(dim=1)),
        ({"positive": [ONE, OTHER]}, (POOLED + TOKENS.mean(dim=1)) / 2),
        # conditionings of several prompts are repeated as ComfyUI does
        ({"positive": [{"pooled_output": SEVERAL}]}, SEVERAL[[0, 1, 2, 0, 1, 2, 0, 1]]),
        *((conds, torch.ones(1, 1)) for conds in ({}, {"positive": []}, {"positive": [{}]})),
    ],
)
def test_prompts_are_told_apart_by_their_pooled_embedding_or_the_mean_of_tokens(conds, expected):
    found = features_of_conds(conds, torch.zeros(SHAPE))
    torch.testing.assert_close(found, expected.expand(8, -1))


class Sdxl(Guider):
    """Evaluates the network of diffusers' pipeline, at the first timestep of its schedule."""

    def __init__(self, pipe):
        super().__init__(Noise, cfg=1.0)
        self.pipe, given = pipe, CASES["SDXL"].embeddings(PROMPTS)
        self.pooled = given["pooled_prompt_embeds"]
        conds = {"c_crossattn": SimpleNamespace(cond=given["prompt_embeds"])}
        self.conds = {"positive": [{"pooled_output": self.pooled, "model_conds": conds}]}

    @torch.no_grad()
    def evaluate(self, x, sigma):
        tokens = self.conds["positive"][0]["model_conds"]["c_crossattn"].cond
        sizes = torch.tensor([[64.0, 64, 0, 0, 64, 64]] * len(x))
        added = {"text_embeds": self.pooled, "time_ids": sizes}
        timestep, scaled = self.pipe.scheduler.timesteps[0], x / (sigma[0] ** 2 + 1) ** 0.5
        return x - sigma[0] * self.pipe.unet(scaled, timestep, tokens, added_cond_kwargs=added)[0]


@pytest.mark.parametrize("given", [{}, {"proposal": "gradient"}])
def test_one_step_without_cfg_is_guided_after_it_as_by_diffusers(tmp_path, monkeypatch, given):
    """At the step's own level, since a higher one is wanted."""
    settings, noise = {"level": 20.0, **given}, torch.randn(2, 4, 8, 8)
    scheduler = diffusers.EulerDiscreteScheduler(timestep_spacing="trailing")
    pipe = make("SDXL", guided=False, scheduler=scheduler)
    how = {"num_inference_steps": 1, "latents": noise}
    stock = generate(pipe, "SDXL", **how)
    expected = generate(pipe, "SDXL", **how, **VendiGuidance(**settings).on(pipe))
    monkeypatch.setattr(Noise, "sigma_max", scheduler.sigmas[0])
    node = DiverseSampling(Rounds(**settings), memory(tmp_path))
    given = {"sigmas": scheduler.sigmas, "noise": noise, "latents": torch.zeros_like(noise)}
    found = draw(True, Sdxl(pipe), node=node, **given)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(stock, expected, atol=0.1)


@pytest.mark.parametrize("sampling", [Noise, Velocity])
def test_a_mask_keeps_its_part_after_one_step(tmp_path, sampling):
    told, guider = [], Guider(sampling, cfg=1.0)
    sigmas = torch.tensor([float(sampling.sigma_max), 0.0])
    how = {"sampler": Masking(euler), "callback": lambda i, *rest: told.append((i, rest[-1]))}
    samples = draw(memory(tmp_path), guider, sigmas=sigmas, **how)
    assert guider.sigmas == [sigmas[0], pytest.approx(1.6 if sampling is Noise else 1.6 / 2.6)]
    assert told == [(0, 2), (1, 2)] and (samples[..., :2] == 0.5).all()


def test_a_sampler_without_a_function_is_refused(tmp_path):
    sampler = SimpleNamespace(class_obj=SimpleNamespace())
    with pytest.raises(ValueError, match="cannot guide a SimpleNamespace: use one of"):
        draw(memory(tmp_path), sampler=sampler)


def test_a_cache_between_steps_is_refused_where_samples_are_guided(tmp_path):
    options = {"transformer_options": {"easycache": SimpleNamespace(name="LazyCache")}}
    draw(memory(tmp_path), model_options=options, **lone(0))
    with pytest.raises(ValueError, match="bypass the node LazyCache"):
        draw(memory(tmp_path), guider := Guider(), model_options=options)
    assert guider.seen == []


def test_a_round_can_ask_for_a_perturbed_prompt_in_that_evaluation_alone(tmp_path, monkeypatch):
    tokens, given = torch.randn(1, 5, 16), []
    mask = SimpleNamespace(cond=torch.tensor([[1, 1, 1, 0, 0]]))
    own = {"c_crossattn": SimpleNamespace(cond=tokens), "attention_mask": mask, "y": object()}

    class Conditioned(Guider):
        def evaluate(self, x, sigma):
            given.append(self.conds["positive"][0]["model_conds"])
            return super().evaluate(x, sigma)

    def modify(engine, step):
        perturb = partial(noise.Noise(step.first_latents).on_prompt, sigma=2.0)
        clean = step.network.denoise(step.latents, perturb=perturb)
        step.network.restart(clean, clean)
        return step

    monkeypatch.setattr(Engine, "modify", modify)
    guider = Conditioned()
    guider.conds["positive"][0]["model_conds"] = own
    draw(memory(tmp_path), guider)
    [perturbed] = [conds for conds in given if conds is not own]
    near = perturbed["c_crossattn"].cond
    assert near.shape == (len(noise_of(0)), 5, 16) and perturbed["y"] is own["y"]
    moved = (near != tokens).any(dim=2)
    assert moved[:, :3].all() and not moved[:, 3:].any()
    assert len(near[:, 0].unique(dim=0)) == len(near)
    assert guider.conds["positive"][0]["model_conds"] is own


class Patcher:
    """A ModelPatcher; those with the same model have the same weights, less LoRAs."""

    def __init__(self, model):
        self.model = model

    def pre_run(self):
        self.model.current_patcher = self

    def cleanup(self):
        self.model.current_patcher = None


class Distilled(Guider):
    """Keeps which model was evaluated, of those that ComfyUI has loaded."""

    model_options: ClassVar = {}

    def __init__(self, loaded, fails=False):
        super().__init__()
        self.model_patcher = Patcher(self.inner_model)
        self.model_patcher.pre_run()
        self.evaluated, self.loaded, self.fails = [], loaded, fails
        loaded.append(self.model_patcher)

    def evaluate(self, x, sigma):
        patcher = self.inner_model.current_patcher
        assert patcher is self.loaded[-1]
        self.evaluated.append(patcher)
        if self.fails and patcher is not self.model_patcher:
            raise ZeroDivisionError
        return super().evaluate(x, sigma)


@pytest.fixture
def loaded(monkeypatch):
    """The patchers that ComfyUI has loaded, in order."""
    patchers = []

    def prepare_sampling(patcher, shape, conds, model_options):
        assert tuple(shape) == SHAPE and "positive" in conds
        patchers.append(patcher)
        return patcher.model, conds, []

    module = SimpleNamespace(prepare_sampling=prepare_sampling)
    monkeypatch.setitem(sys.modules, "comfy", SimpleNamespace(sampler_helpers=module))
    monkeypatch.setitem(sys.modules, "comfy.sampler_helpers", module)
    return patchers


@pytest.mark.parametrize(("shared", "fails"), [(False, False), (True, False), (True, True)])
def test_the_undistilled_model_predicts_in_the_rounds_alone(tmp_path, loaded, shared, fails):
    guider = Distilled(loaded, fails)
    own = guider.model_patcher
    base = Patcher(own.model if shared else SimpleNamespace(model_sampling=Noise))
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        draw(memory(tmp_path), guider, undistilled=base)
    names = ["base" if it is base else "own" for it in guider.evaluated]
    rest = len(SIGMAS) - 1 - AT
    of_rounds, after = (1, 0) if fails else (EVALUATIONS, rest)
    assert names == ["own"] * (AT + 1) + ["base"] * of_rounds + ["own"] * after
    assert loaded == [own, base, own]
    assert guider.inner_model is own.model and own.model.current_patcher is own


def test_an_undistilled_model_of_another_kind_is_refused(tmp_path, loaded):
    with pytest.raises(ValueError, match=r"is a Velocity, but .* is a SimpleNamespace"):
        draw(memory(tmp_path), Distilled(loaded), undistilled=Patcher(Velocity()))


def test_one_step_is_left_to_the_distilled_model(tmp_path, loaded):
    guider = Distilled(loaded)
    guider.cfg = 1.0
    draw(memory(tmp_path), guider, sigmas=SIGMAS[[0, -1]], undistilled=Patcher(Velocity()))
    assert loaded == [guider.model_patcher] and len(guider.seen) == 2
