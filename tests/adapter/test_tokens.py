"""Predictions for a perturbed prompt, on tiny pipelines of nearly every kind."""

from itertools import product

import pytest
import torch

from tests.adapter.test_denoiser import NAMES, call, module_of, pipeline, watching
from vendi_guidance.adapter.arguments import by_name, input_of
from vendi_guidance.adapter.tokens import CACHE, TOKENS, _mask, with_tokens
from vendi_guidance.guidance.noise import perturbed_prompt

NO_PROMPT = ["Kandinsky 2.2"]
WITH_PROMPT = [name for name in NAMES if name not in NO_PROMPT]
SIGMA = 2.0


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def noisy(*seeds):
    """Noise on the tokens of samples with these seeds."""
    each = generators(*seeds)
    return lambda tokens, sample, mask: perturbed_prompt(tokens, SIGMA, each[sample], mask)


def arguments_of_the_last_evaluation(name):
    """With CFG; and their module."""
    calls = []
    module = module_of(pipeline(name))
    hook = module.register_forward_pre_hook(lambda *it: calls.append(it), with_kwargs=True)
    call(name, guided=True)
    hook.remove()
    return calls[-1]


def test_noise_is_as_long_as_asked_also_on_zeros_alike_in_a_samples_rows_and_not_on_padding():
    tokens = torch.randn(2, 40, 3, 64) * torch.logspace(-2, 2, 40)[:, None, None]
    tokens[:, 5] = 0
    mask = torch.arange(40) < 30
    near = perturbed_prompt(tokens, 0.5, *generators(0), mask)
    norm = tokens.norm(dim=-1, keepdim=True)
    norm[:, 5] = norm[:, mask][norm[:, mask] > 0].mean()
    noise = (near - tokens) / norm
    assert noise[:, mask].norm(dim=-1).mean().item() == pytest.approx(0.5, rel=0.05)
    assert torch.equal(near[:, ~mask], tokens[:, ~mask])
    torch.testing.assert_close(noise[0], noise[1], rtol=1e-3, atol=1e-3)
    shorter = perturbed_prompt(tokens[:, :33], 0.5, *generators(0), mask[:33])
    assert torch.equal(shorter, near[:, :33])
    assert torch.equal(perturbed_prompt(tokens.bfloat16(), 0.0, *generators(0)), tokens.bfloat16())


@pytest.mark.parametrize(("name", "guided"), list(product(WITH_PROMPT, [False, True])))
def test_the_prediction_is_another_one_and_nothing_that_follows_changes(name, guided):
    def at_step(index, latents):
        x = watch.step.sample
        assert network.has_prompt
        plain = network.denoise(x)
        near, again = (network.denoise(x, perturb=noisy(1, 2)) for _ in range(2))
        assert torch.equal(near, again)
        assert not torch.equal(near, plain)
        assert torch.equal(network.denoise(x), plain)

    with watching(pipeline(name)) as (network, watch):
        assert torch.equal(call(name, at_step=at_step, guided=guided), call(name, guided=guided))


@pytest.mark.parametrize("name", WITH_PROMPT)
def test_only_tokens_of_the_rows_asked_change(name):
    module, args, kwargs = arguments_of_the_last_evaluation(name)
    before = by_name(module, args, kwargs)
    rows = len(input_of(before))
    own = range(rows)[-2:]
    near = with_tokens(module, before, own, rows, noisy(1, 2))
    assert near.keys() == before.keys()
    for key in before.keys() - {*CACHE}:
        if key not in TOKENS or before[key] is None:
            assert near[key] is before[key]
            continue
        mask = _mask(before, key, TOKENS[key])
        each = len(before[key]) // rows  # frames
        for i, (one, other) in enumerate(zip(before[key], near[key], strict=True)):
            read = torch.ones(len(one), dtype=torch.bool) if mask is None else mask[i]
            moved = (one != other).flatten(1).any(dim=1)
            assert torch.equal(moved, read & (i // each in own))


@pytest.mark.parametrize("name", NO_PROMPT)
def test_a_network_without_tokens_says_so(name):
    def at_step(index, latents):
        assert not network.has_prompt
        with pytest.raises(ValueError, match="no embeddings of a prompt's tokens"):
            network.denoise(latents, perturb=noisy(1, 2))

    with watching(pipeline(name)) as (network, _):
        call(name, at_step=at_step)
