"""Moves inside the network in ComfyUI's node, with a network of one block."""

import math

import pytest
import torch
from torch import nn

from integrations.comfyui import memory as memories
from integrations.comfyui.blocks import Blocks
from integrations.comfyui.sampling import DiverseSampling
from tests.integrations.test_comfyui_sampling import (
    CFG,
    SIGMAS,
    Guider,
    Noise,
    Velocity,
    diversity,
    draw,
    euler,
    heun,
    in_two_runs,
    lone,
    memory,
    noise_of,
)
from vendi_guidance.guidance import inside
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.window import SlidingWindow

EARLY = sum(float(sigma) > inside.ABOVE for sigma in SIGMAS)


class Layer(nn.Module):
    def forward(self, x, emb=None):
        return x.tanh()


class Network(nn.Module):
    """A UNet as far as ComfyUI's are known: the layers of its middle block are called one by one.
    `vague` networks know their prompt with CFG alone."""

    def __init__(self, vague=0.2):
        super().__init__()
        self.middle_block = nn.Sequential(nn.Identity(), Layer())
        self.vague, self.rows = vague, []

    def forward(self, x, sigma, conditions, transformer_options):
        self.rows.append(transformer_options["cond_or_uncond"])
        h = x / (1 + sigma.view(-1, 1, 1, 1))
        for layer in self.middle_block:
            h = layer(h)
        return self.vague * h * (1 + 2 * conditions.view(-1, 1, 1, 1))


class Unet(Guider):
    """Evaluates a network with ComfyUI's batches: `split` into calls where memory is short, the
    list of negative prompts first. `prompts` is how many conditionings the positive list has."""

    def __init__(self, network=None, sampling=Noise, **given):
        self.split, self.prompts = given.pop("split", False), given.pop("prompts", 1)
        super().__init__(sampling, **given)
        self.inner_model.diffusion_model = Network() if network is None else network

    def predict_noise(self, x, sigma, model_options=None, seed=None):
        given = [self.conds["positive"], None if self.cfg == 1 else []]
        options = (model_options or {}).get("transformer_options", {})
        for wrapper in options.get("wrappers", {}).get("calc_cond_batch", {}).values():
            return wrapper[0](None, None, given, x, sigma, model_options)[0]
        self.seen.append((float(sigma[0]), self.cfg))
        lists = [1] * (given[1] is not None) + [0] * self.prompts
        outputs = {}
        for batch in [[it] for it in lists] if self.split else [lists]:
            many = len(batch)
            conditions = torch.tensor([float(it == 0) for it in batch]).repeat_interleave(len(x))
            answer = self.inner_model.diffusion_model(
                torch.cat([x] * many),
                torch.cat([sigma] * many),
                conditions=conditions,
                transformer_options={"cond_or_uncond": batch},
            )
            outputs |= dict(zip(batch, answer.chunk(many), strict=True))
        other = outputs.get(1, outputs[0])
        return other + self.cfg * (outputs[0] - other)


def untouched(guider):
    network = guider.inner_model.diffusion_model
    layers = [network, *network.middle_block]
    return not any("forward" in vars(it) for it in layers) and guider.cfg == CFG


@pytest.mark.parametrize(
    ("function", "sampling", "sigmas"),
    [(euler, Noise, SIGMAS), (heun, Noise, SIGMAS), (euler, Velocity, SIGMAS / (1 + SIGMAS))],
)
def test_a_vague_network_is_moved_inside_with_all_of_cfg(tmp_path, function, sampling, sigmas):
    how = {"sigmas": sigmas, "function": function}
    guider, plain = Unet(sampling=sampling), Unet(sampling=sampling)
    samples, stock = draw(memory(tmp_path), guider, **how), draw(None, plain, **how)
    assert diversity(samples) > diversity(stock) and untouched(guider)
    extra, steps = guider.seen[:3], guider.seen[3:]
    assert [cfg for _, cfg in extra] == [1.0, CFG, CFG]  # without, with, and moved: the first step
    assert [at for at, _ in steps] == plain.sigmas[1:]
    levels = [at / (1 - at) if sampling is Velocity else at for at, _ in steps]
    stop = inside.CFG_STOP
    assert [cfg for _, cfg in steps] == [CFG if it > stop else 1.0 for it in levels]


@pytest.mark.parametrize("network", [Network(vague=0.9), nn.Linear(3, 3)])
def test_other_networks_make_rounds_and_without_a_known_block_say_so(tmp_path, network, caplog):
    guider = Unet(network)
    if isinstance(network, nn.Linear):
        network.forward = lambda x, sigma, **_: 0.2 * x / (1 + sigma.view(-1, 1, 1, 1))
    with caplog.at_level("INFO"):
        draw(memory(tmp_path), guider)
    is_known = not isinstance(network, nn.Linear)
    # the first prediction is the sampler's own; only moves inside ask for one with CFG
    assert guider.sigmas.count(float(SIGMAS[0])) == 1
    assert guider.seen[0][1] == 1.0 and len(guider.seen) > len(SIGMAS) + 3
    assert any("no known block: rounds" in it for it in caplog.messages) != is_known


def test_prompts_are_told_apart_however_comfyui_batches_them(tmp_path):
    whole, split, several = Unet(), Unet(split=True), Unet(prompts=2)
    expected = draw(memory(tmp_path), whole)
    found = [draw(memory(tmp_path), each) for each in (split, several)]
    torch.testing.assert_close(found[1], expected)
    stock = draw(None, Unet())
    assert diversity(found[0]) > diversity(stock) and [1] in split.inner_model.diffusion_model.rows
    blocks = Blocks(whole)
    blocks.find_own([0, 0, prompts := [1]], {"positive": prompts})  # DualCFGGuider
    blocks._lists = [2, 1, 0]
    assert blocks.own_rows(12, 4) == slice(0, 4) and blocks.own_rows(8, 4) is None


@pytest.mark.parametrize("kind", ["session", "file"])
def test_images_one_at_a_time_differ_from_those_of_the_session(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(memories, "_session", {})
    first, second = (lone(seed) for seed in range(2))
    stock = [draw(None, Unet(), **each) for each in (first, second)]
    guiders = Unet(), Unet()
    assert torch.equal(draw(memory(tmp_path, kind), guiders[0], **first), stock[0])
    assert [cfg for _, cfg in guiders[0].seen] == [CFG] * (len(SIGMAS) - 1)
    moved = draw(memory(tmp_path, kind), guiders[1], **second)
    assert not torch.allclose(moved, stock[1], atol=1e-3)
    assert all(map(untouched, guiders))
    if kind == "file":
        [path] = tmp_path.iterdir()
        window = SlidingWindow.load(path)
        assert len(window) == 2 and len(window.shapes) == 1 + EARLY


@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_later_run_goes_on_with_the_moves_of_the_first(tmp_path, cut):
    one, two = Unet(), Unet()
    expected = draw(memory(tmp_path), one)
    node = DiverseSampling(Rounds(), memory(tmp_path))
    found = in_two_runs(memory(tmp_path), SIGMAS, cut, guider=two, node=node)
    assert torch.equal(found, expected) and one.seen == two.seen


def test_nan_and_interrupts_leave_the_model_as_it_was(tmp_path):
    noise = noise_of(0)
    noise[0] = math.nan
    guider = Unet()
    samples = draw(memory(tmp_path, "file"), guider, noise=noise)
    assert samples[1:].isfinite().all() and untouched(guider)
    assert diversity(samples[1:]) > diversity(draw(None, Unet(), noise=noise)[1:])

    def interrupt(i, *_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draw(memory(tmp_path), guider, callback=interrupt)
    assert untouched(guider)
