"""Methods of 2026 that change the initial noise, and nothing else of a call."""

import math
from collections.abc import Callable
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn import functional

from scripts.comparison.call import Call, Step
from vendi_guidance.adapter.arguments import input_name, input_of, tensor_of
from vendi_guidance.adapter.levels import Reader
from vendi_guidance.adapter.patching import Patch

ITERATIONS, TEMPERATURE, POOLING = 3, 0.1, 4  # of CNO


def pink_noise(call: Call, exponent: float) -> list[Image]:
    """Initial noise with more of its power at low frequencies.

    Harrington et al. ("It's Never Too Late", arXiv:2601.00090, CVPR 2026) also optimize the noise,
    with gradients through the sampler and an image encoder. This is their initialization alone,
    which they report for independent samples too, with an exponent of 0.2.
    """
    if not exponent:
        return call.images()
    return _started(call, call.images, lambda latents: pink(latents, exponent))


def pink(white: Tensor, exponent: float) -> Tensor:
    """(n, c, h, w) noise with its amplitudes times frequency^(-exponent / 2), at each sample's
    former standard deviation.

    The paper leaves open the weight of the mean, whose frequency is 0 (here, that of the lowest
    other frequency), and over what the variance is normalized.
    """
    height, width = white.shape[-2:]
    rows, columns = torch.fft.fftfreq(height)[:, None], torch.fft.rfftfreq(width)
    frequency = torch.hypot(rows, columns).clamp(min=1 / max(height, width)).to(white.device)
    spectrum = torch.fft.rfft2(white.float()) * frequency ** (-exponent / 2)
    coloured = torch.fft.irfft2(spectrum, s=(height, width))
    ratio = white.float().flatten(1).std(dim=1) / coloured.flatten(1).std(dim=1)
    return (coloured * ratio[:, None, None, None]).to(white.dtype)


def contrastive_noise(call: Call, rate: float) -> list[Image]:
    """Contrastive noise optimization (CNO): before the first step, the predictions of a prompt's
    samples are driven apart, and each towards what it was.

    Kim, Um & Ye (ICLR 2026, arXiv:2510.03813): 3 iterations of Adam with learning rate `rate` on
    `contrast`. Iterations, temperature and a rate of 0.01 are from the authors' scripts for SDXL.
    They pool latents of 64 to 16 a side; smaller ones are left open, and here pooled as much. As in
    the paper's efficient variant, no gradient passes through the network: an iteration costs one
    evaluation of all rows, and the first is also the reference, so that the call takes 3 more.
    ValueError if there is no gradient: velocities at a first step without signal are images.
    """
    if not rate:
        return call.images()
    starts: list[Tensor] = []

    def keep(latents: Tensor) -> Tensor:
        starts.append(latents)
        return latents

    def evaluate(step: Step) -> Any:
        return step.output() if step.number else _optimize(call, step, starts[-1], rate)

    return _started(call, lambda: call.images_by(evaluate), keep)


def _optimize(call: Call, step: Step, start: Tensor, rate: float) -> Any:
    """Optimize the latents `start` in place; returns the network's output for them."""
    reader = Reader(scheduler := call.pipe.scheduler)
    level = reader.at(reader.clock()[1](float(scheduler.timesteps[0])))
    size, scale = math.hypot(*level), reader.input_scale(level)
    noise = (start.float() / size).requires_grad_()
    optimizer = torch.optim.Adam([noise], lr=rate)
    groups = call.groups
    reference = None
    for _ in range(ITERATIONS if groups else 0):
        latents = noise.detach() * size
        raw = _guided(call, step, tensor_of(_output_for(step, latents * scale)).float())
        with torch.enable_grad():
            predicted = reader.denoise(noise * size, raw, level)
            reference = predicted.detach() if reference is None else reference
            losses = [contrast(predicted[rows], reference[rows]) for rows in groups]
            [noise.grad] = torch.autograd.grad(sum(losses, torch.zeros(())), [noise])
        if noise.grad.abs().max() < 1e-12:  # without signal rounding alone is left
            raise ValueError("contrastive noise needs a first step with signal")
        optimizer.step()
    start.copy_(noise.detach() * size)
    return _output_for(step, start.float() * scale)


def contrast(predicted: Tensor, reference: Tensor) -> Tensor:
    """InfoNCE between (n, c, h, w) predictions and their references, n > 1: at each place of the
    pooled maps, a sample's reference against its prompt's other samples, by cosine similarity.

    gamma strengthens the attraction so that it balances the repulsion of all others at once.
    """
    n, _, height, width = predicted.shape
    places = max(1, height // POOLING), max(1, width // POOLING)
    own, held = (
        functional.normalize(functional.adaptive_avg_pool2d(maps, places).flatten(2), dim=1)
        for maps in (predicted, reference)
    )
    gamma = 1 / (TEMPERATURE * math.log(n - 1) + 1)
    similarity = torch.einsum("icp,jcp->pij", own, own) / TEMPERATURE
    attraction = torch.einsum("icp,icp->pi", own, held) / (gamma * TEMPERATURE)
    is_own = torch.eye(n, dtype=torch.bool, device=own.device)
    logits = torch.where(is_own, attraction[:, :, None], similarity)
    return functional.cross_entropy(
        logits.flatten(0, 1), torch.arange(n, device=own.device).repeat(len(logits))
    )


def _output_for(step: Step, inputs: Tensor) -> Any:
    """The network's output for other inputs, the same ones in all parts of CFG."""
    _, forward, args, kwargs, _ = step.evaluation
    given = tensor_of(input_of(args, kwargs))
    full = torch.cat([inputs.to(given.dtype)] * (len(given) // len(inputs)))
    if args:
        return forward(full, *args[1:], **kwargs)
    return forward(*args, **{**kwargs, input_name(kwargs): full})


def _guided(call: Call, step: Step, output: Tensor) -> Tensor:
    """The output after CFG."""
    own = output[step.rows.start : step.rows.stop]
    if len(output) == len(own):
        return own
    other = output[len(own) :] if step.rows.start == 0 else output[: len(own)]
    return other + call.arguments["guidance_scale"] * (own - other)


def _started(
    call: Call, images: Callable[[], list[Image]], change: Callable[[Tensor], Tensor]
) -> list[Image]:
    """The images of a call whose first latents are changed."""
    with Patch(
        *(call.pipe, "prepare_latents"),
        lambda prepare: lambda *args, **kwargs: change(prepare(*args, **kwargs)),
    ):
        return images()
