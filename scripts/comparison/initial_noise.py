"""Methods that change the initial noise, and nothing else of a call."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn import functional

from scripts.comparison.call import Call, Step
from scripts.comparison.prompt_noise import noise_generators
from vendi_guidance.adapter.arguments import input_of, tensor_of, with_input
from vendi_guidance.adapter.levels import Level, Reader
from vendi_guidance.adapter.patching import patched

ITERATIONS, TEMPERATURE, POOLING = 3, 0.1, 4  # of CNO
STEP = 0.05  # of DivIn


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

    def optimize(start: "Start") -> Tensor:
        noise = start.noise.requires_grad_()
        optimizer = torch.optim.Adam([noise], lr=rate)
        reference = None
        for _ in range(ITERATIONS if call.groups else 0):
            raw = start.step.guided(start.output(noise.detach()), call.arguments["guidance_scale"])
            with torch.enable_grad():
                predicted = start.denoise(noise, raw)
                reference = predicted.detach() if reference is None else reference
                losses = [contrast(predicted[rows], reference[rows]) for rows in call.groups]
                [noise.grad] = torch.autograd.grad(sum(losses, torch.zeros(())), [noise])
            if noise.grad.abs().max() < 1e-12:  # without signal rounding alone is left
                raise ValueError("contrastive noise needs a first step with signal")
            optimizer.step()
        return noise.detach()

    return _started_by(call, optimize)


def diverse_start(call: Call, temperature: float) -> list[Image]:
    """DivIn: a Langevin step takes the initial noise to where the prompt pulls less.

    Li, Liu & Kawaguchi (ICML 2026, arXiv:2606.02453): one step of size 0.05 for the Gaussian prior
    times exp(-temperature x U), where U is the distance between the clean images predicted with and
    without the prompt. Their temperatures are 0.5 to 1. The gradient passes through the network:
    one evaluation of all rows more, and one backwards, which takes about as long as two.
    """
    if not temperature:
        return call.images()

    def moved(start: "Start") -> Tensor:
        noise = start.noise.requires_grad_()
        with torch.enable_grad():
            parts = start.output(noise).unflatten(0, (2, -1))
            own, other = (start.denoise(noise, part) for part in parts)
            [slope] = torch.autograd.grad((own - other).flatten(1).norm(dim=1).sum(), [noise])
        noise = noise.detach()
        drawn = [torch.randn(noise.shape[1:], generator=it) for it in noise_generators(call.seeds)]
        fresh = torch.stack(drawn).to(noise)
        return noise - STEP * (temperature * slope + noise) + math.sqrt(2 * STEP) * fresh

    return _started_by(call, moved)


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


class Start(NamedTuple):
    """The first step of a call.

    Attributes:
        noise: the float32 latents at it, scaled to unit variance.
    """

    step: Step
    reader: Reader
    level: Level
    noise: Tensor

    def inputs(self, noise: Tensor) -> Tensor:
        """The latents of the network that has this noise."""
        return noise * math.hypot(*self.level) * self.reader.input_scale(self.level)

    def output(self, noise: Tensor) -> Tensor:
        """The float32 output of the network for other noise, of all parts of CFG."""
        return tensor_of(_output_for(self.step, self.inputs(noise))).float()

    def denoise(self, noise: Tensor, output: Tensor) -> Tensor:
        """The predicted clean latents."""
        return self.reader.denoise(noise * math.hypot(*self.level), output, self.level)


def _started_by(call: Call, change: Callable[[Start], Tensor]) -> list[Image]:
    """The images of a call whose initial noise is changed by means of its network."""
    starts: list[Tensor] = []

    def keep(latents: Tensor) -> Tensor:
        starts.append(latents)
        return latents

    def evaluate(step: Step) -> Any:
        if step.number:
            return step.output()
        reader, level = call.level_at(0)
        size, latents = math.hypot(*level), starts[-1]
        start = Start(step, reader, level, latents.float() / size)
        latents.copy_(change(start) * size)
        return _output_for(step, start.inputs(latents.float() / size))

    return _started(call, lambda: call.images_by(evaluate), keep)


def _output_for(step: Step, inputs: Tensor) -> Any:
    """The network's output for other inputs, the same ones in all parts of CFG."""
    given = step.evaluation.given
    old = tensor_of(input_of(given))
    full = torch.cat([inputs.to(old.dtype)] * (len(old) // len(inputs)))
    return step.evaluation.forward(**with_input(given, full))


def _started(
    call: Call, images: Callable[[], list[Image]], change: Callable[[Tensor], Tensor]
) -> list[Image]:
    """The images of a call whose first latents are changed."""
    with patched(
        *(call.pipe, "prepare_latents"),
        lambda prepare: lambda *args, **kwargs: change(prepare(*args, **kwargs)),
    ):
        return images()
