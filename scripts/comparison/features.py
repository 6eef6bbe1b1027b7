"""Methods of 2026 that change features inside the network at the first steps.

Strengths are without unit: a step of size 1 moves a sample's features by their norm times the
gradient with respect to the normalized features. The papers' are in units of each network.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from diffusers.models.attention import BasicTransformerBlock
from diffusers.models.transformers.transformer_2d import Transformer2DModel
from PIL.Image import Image
from torch import Tensor, nn

from scripts.comparison.call import Call, Step
from scripts.comparison.initial_noise import pink

FIRST_STEPS = 0.15  # of DAVE, STRIDE and contextual repulsion
SELF_GUIDED, DISPERSIONS, PROJECTED = 0.2, 30, 0.4  # of FSG: steps, iterations, beta
REPULSIONS, LEAST_EIGENVALUE = 100, 1e-4  # of contextual repulsion
COMPONENTS = 8  # of STRIDE


def dc_attenuation(call: Call, share: float) -> list[Image]:
    """DAVE: at the first steps, a block's features lose a share of their spatial mean.

    Kwon, Lee & Choi ("Breaking the Lock-in", ICML 2026, arXiv:2606.06813). Their notebook for SD3
    takes half of the mean after the second block at 4 of 28 steps, in all parts of CFG. They know
    transformers only; of a UNet, this is the output of its second transformer.
    """

    def attenuated(block: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        return _with_image(output, lambda x: without_mean(x, share))

    return _hooked(call, lambda network: blocks(network)[1:2], lambda step: attenuated, FIRST_STEPS)


def without_mean(x: Tensor, share: float) -> Tensor:
    """(rows, tokens, width) tokens or (rows, width, h, w) maps less a share of their mean."""
    places = (2, 3) if x.ndim == 4 else (1,)
    return x - share * x.float().mean(dim=places, keepdim=True).to(x.dtype)


def feature_self_guidance(call: Call, strength: float) -> list[Image]:
    """FSG: a prompt's features are dispersed after the second block and pass through it again.

    Bhat et al. ("Don't Settle at the Mode!", ECCV 2026, arXiv:2606.27371): 30 iterations on the
    logarithm of the mean of exp(cosine similarity), at the first fifth of the steps; then 0.6 of
    the dispersed features and 0.4 of the block's output for them. The temperature, here 1, and the
    parts of CFG, here all, were not to be found. Of a UNet, the block is its second transformer.
    The second pass through the one block is not among the evaluations counted.
    """
    if not strength:
        return call.images()

    def hook_of(step: Step) -> Hook:
        def refined(block: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            def change(x: Tensor) -> Tensor:
                moved = x.clone()
                for rows in _groups(call, len(x)):
                    moved[rows] = dispersed(x[rows], _similarity, strength, DISPERSIONS)
                if args:
                    again = block.forward(moved, *args[1:], **kwargs)
                else:
                    again = block.forward(**{**kwargs, "hidden_states": moved})
                projected = again if isinstance(again, Tensor) else again[-1]
                return torch.lerp(moved, projected, PROJECTED)

            return _with_image(output, change)

        return refined

    return _hooked(call, lambda network: blocks(network)[1:2], hook_of, SELF_GUIDED)


def pink_features(call: Call, strength: float) -> list[Image]:
    """STRIDE: at the first steps, pink noise in a block's features, along their own components.

    Yadav et al. (arXiv:2605.11494), for distilled transformers. Their text was not at hand beyond
    the abstract: noise whose power falls as 1 / frequency, projected on the first principal
    components of each image's features. Ours: the second block or transformer, 8 components, the
    same noise in all parts of CFG, and `strength` as a share of the features' deviation.
    """

    def perturbed(block: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        return _with_image(output, lambda x: along_components(x, call.seeds, strength))

    return _hooked(call, lambda network: blocks(network)[1:2], lambda step: perturbed, FIRST_STEPS)


def along_components(x: Tensor, seeds: Sequence[int], strength: float) -> Tensor:
    """(rows, tokens, width) tokens or (rows, width, h, w) maps with pink noise of each seed, whose
    deviation from zero is a share of theirs from their mean."""
    tokens = (x if x.ndim == 3 else x.flatten(2).mT).float()
    centred = tokens - tokens.mean(dim=1, keepdim=True)
    basis = torch.linalg.svd(centred, full_matrices=False).Vh[:, :COMPONENTS]
    side = x.shape[-2:] if x.ndim == 4 else (math.isqrt(tokens.shape[1]),) * 2
    shape = (basis.shape[1], *side)
    white = [torch.randn(shape, generator=torch.Generator().manual_seed(it)) for it in seeds]
    noise = pink(torch.stack(white), 1.0).flatten(2).mT.to(tokens)
    moved = noise.repeat(len(x) // len(seeds), 1, 1) @ basis
    norms = [it.flatten(1).norm(dim=1)[:, None, None] for it in (centred, moved)]
    moved = strength * norms[0] / norms[1] * moved
    return x + (moved if x.ndim == 3 else moved.mT.view(x.shape)).to(x.dtype)


def contextual_repulsion(call: Call, strength: float) -> list[Image]:
    """The text tokens of a prompt's samples repel each other after each block's joint attention.

    Dahary et al. ("On-the-fly Repulsion in the Contextual Space", SIGGRAPH 2026,
    arXiv:2603.28762): 100 iterations up the entropy of the cosine similarities, in all blocks and
    parts of CFG, at 4 of 28 steps of SD3.5. A network with cross-attention has no text tokens that
    take up the image, and the paper has no variant for it. What stands in is the output of each
    cross-attention, the text as read from each place of the image, whose order is not that of
    words: this is our choice, not theirs.
    """

    def repelled(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if isinstance(output, Tensor):
            return change(output) if module in contexts else output
        return output[0], change(output[1]), *output[2:]

    def change(x: Tensor) -> Tensor:
        moved = x.clone()
        for rows in _groups(call, len(x)):
            moved[rows] = dispersed(x[rows], _entropy, strength, REPULSIONS)
        return moved

    contexts: list[nn.Module] = []

    def found(network: nn.Module) -> list[nn.Module]:
        parts = list(network.modules())
        crossed = [it for it in parts if isinstance(it, BasicTransformerBlock)]
        contexts[:] = [it.get_submodule("attn2") for it in crossed]
        return contexts or [it.get_submodule("attn") for it in blocks(network)]

    return _hooked(call, found, lambda step: repelled, FIRST_STEPS)


def dispersed(x: Tensor, slope: Callable[[Tensor], Tensor], strength: float, steps: int) -> Tensor:
    """n samples of features after `steps` steps of gradient ascent of size strength / steps.

    Args:
        slope: the gradient of the objective with respect to the (n, n) cosine similarities.
    """
    flat = x.flatten(1).double()
    basis, coordinates = torch.linalg.qr(flat.T)  # steps stay in the span of the samples
    start = moved = coordinates.T
    for _ in range(steps):
        norms = moved.norm(dim=1, keepdim=True)
        units = moved / norms
        push = 2 * slope(units @ units.T) @ units
        push = push - (push * units).sum(dim=1, keepdim=True) * units
        moved = moved + strength / steps * norms * push
    return (flat + (moved - start) @ basis.T).to(x.dtype).view_as(x)


def _similarity(cosines: Tensor) -> Tensor:
    """Of minus the logarithm of the mean of exp(cosines)."""
    return -cosines.flatten().softmax(dim=0).view_as(cosines)


def _entropy(cosines: Tensor) -> Tensor:
    """Of the entropy of the eigenvalues of cosines / n, up to a multiple of the identity."""
    values, vectors = torch.linalg.eigh(cosines / len(cosines))
    return -(vectors * values.clamp(min=LEAST_EIGENVALUE).log()) @ vectors.T / len(cosines)


Hook = Callable[[nn.Module, Any, Any, Any], Any]


def _hooked(
    call: Call,
    modules: Callable[[nn.Module], Iterable[nn.Module]],
    hook_of: Callable[[Step], Hook],
    until: float,
) -> list[Image]:
    """The images of a call in which hooks change modules' outputs at this share of its steps."""

    def evaluate(step: Step) -> Any:
        if step.done >= until:
            return step.output()
        found, hook = modules(step.evaluation.module), hook_of(step)
        handles = [it.register_forward_hook(hook, with_kwargs=True) for it in found]
        try:
            return step.output()
        finally:
            for handle in handles:
                handle.remove()

    return call.images_by(evaluate)


def blocks(network: nn.Module) -> list[nn.Module]:
    """A transformer's blocks, or the transformers of a UNet, from its input on."""
    own = getattr(network, "transformer_blocks", None)
    return [*own] if own else [it for it in network.modules() if isinstance(it, Transformer2DModel)]


def _with_image(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A block's output with its image features changed; text tokens stand before them."""
    return change(output) if isinstance(output, Tensor) else (*output[:-1], change(output[-1]))


def _groups(call: Call, rows: int) -> list[list[int]]:
    """The rows of each prompt with several samples, in each part of CFG."""
    count = len(call.prompts)
    return [[row + first for row in it] for first in range(0, rows, count) for it in call.groups]
