"""Tiny versions of nearly all kinds of diffusers pipelines, and the arguments to call them with.

Prompts are numbers: prompt n stands for its own random embeddings, which are passed directly. Some
pipelines do not repeat embeddings for several images of a prompt; these also accept text.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import diffusers
import torch
from torch import Tensor

from tests.helpers import tiny_transformers as dit, tiny_unets as unet
from tests.helpers.tiny_text import TOKENS, WIDTH

NEGATIVE = 7  # number of the negative prompt
SQUARE = {"height": 64, "width": 64}  # eight times that of the latents


@contextmanager
def evaluations(network: torch.nn.Module) -> Iterator[list[int]]:
    """Records the batch size of each evaluation of a network while the context lasts."""
    rows: list[int] = []
    leaf = next(it for it in network.modules() if not [*it.children()])
    hook = leaf.register_forward_hook(lambda module, args, output: rows.append(len(args[0])))
    try:
        yield rows
    finally:
        hook.remove()


def with_scheduler(pipe: Any, kind: str, **options: Any) -> Any:
    """Replace a pipeline's scheduler by one of another kind with the same configuration."""
    scheduler = getattr(diffusers, f"{kind}Scheduler")
    pipe.scheduler = scheduler.from_config(pipe.scheduler.config, **options)
    return pipe


@dataclass(frozen=True)
class Case:
    """A pipeline, and the arguments to call it with."""

    build: Callable[[], Any]
    takes: dict[str, tuple[int, ...]]  # argument with embeddings or a mask -> shape for one prompt
    fixed: dict[str, Any] = field(default_factory=lambda: SQUARE)  # arguments of every call
    latent: tuple[int, ...] = (4, 8, 8)  # as the callback sees it
    guided: dict[str, Any] = field(default_factory=lambda: {"guidance_scale": 3.0})
    plain: dict[str, Any] = field(default_factory=lambda: {"guidance_scale": 1.0})  # without CFG
    per_prompt: str | None = "num_images_per_prompt"  # None if it has no effect
    repeats: bool = True  # embeddings, for several images of a prompt; else it must be a text
    lists: bool = False  # of embeddings, a tensor for each prompt
    negative: bool = True  # False if guidance is built into the network
    always_negative: bool = False  # also without guidance
    callback: bool = True  # takes `callback_on_step_end`

    def make(self) -> Any:
        """The pipeline, with the same weights each time and no progress bar."""
        torch.manual_seed(0)
        pipeline = self.build()
        pipeline.set_progress_bar_config(disable=True)
        return pipeline.to(torch.empty(0).device)

    def embeddings(self, prompts: Sequence[int]) -> dict[str, Any]:
        """The embeddings of these prompts, by argument."""
        rows = {name: [one(name, n, shape) for n in prompts] for name, shape in self.takes.items()}
        return rows if self.lists else {name: torch.stack(row) for name, row in rows.items()}

    @staticmethod
    def _text(prompts: Sequence[int]) -> dict[str, Any]:
        return {"prompt": ["abcdefgh"[n] * (n + 2) for n in prompts]}

    def arguments(
        self, prompts: Sequence[int], guided: bool = False, images: int = 1, text: bool = False
    ) -> dict[str, Any]:
        """The arguments of a call for these prompts, given as embeddings or as text."""
        encode = self._text if text else self.embeddings
        conditions = encode(prompts)
        if (guided and self.negative) or self.always_negative:
            negative = encode([NEGATIVE] * len(prompts))
            conditions |= {f"negative_{name}": value for name, value in negative.items()}
        return {
            **conditions,
            **self.fixed,
            **(self.guided if guided else self.plain),
            **({self.per_prompt: images} if self.per_prompt else {}),
            "num_inference_steps": 3,
            "output_type": "latent",
            "return_dict": False,
            "generator": torch.Generator().manual_seed(0),
        }


def one(name: str, prompt: int, shape: tuple[int, ...]) -> Tensor:
    """The embedding of a prompt for an argument, or a mask of ones, fewer for some prompts."""
    if "mask" in name:
        return torch.arange(shape[0]) < shape[0] - prompt % 3
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * len(name) + prompt))


WORDS = {"prompt_embeds": (TOKENS, WIDTH)}
POOLED = {**WORDS, "pooled_prompt_embeds": (WIDTH,)}
MASKED = {**WORDS, "prompt_attention_mask": (TOKENS,)}
WIDE = {"prompt_embeds": (TOKENS, 2 * WIDTH), "pooled_prompt_embeds": (2 * WIDTH,)}
QWEN = {**WORDS, "prompt_embeds_mask": (TOKENS,)}
LAYERED = {**QWEN, "prompt_embeds": (TOKENS, dit.LAYERS, WIDTH)}
IMAGE = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
STARTED = {"image": IMAGE, "strength": 0.9}
SMALL = {"height": 16, "width": 16}
NINE_FRAMES = {**SQUARE, "num_frames": 9}
VIDEOS = "num_videos_per_prompt"
UNBINNED = {**SQUARE, "use_resolution_binning": False, "negative_prompt": None}
TRUE_CFG = {"guided": {"true_cfg_scale": 3.0}, "plain": {"true_cfg_scale": 1.0}}

PACKED = (16, 16)  # shape of latents as tokens

CASES: dict[str, Case] = {
    "SD 1.5": Case(unet.stable_diffusion, WORDS),
    "InstructPix2Pix": Case(unet.instruct_pix2pix, WORDS, {"image": IMAGE.expand(2, 3, 16, 16)}),
    "SDXL": Case(unet.stable_diffusion_xl, POOLED),
    "SDXL img2img": Case(unet.stable_diffusion_xl_img2img, POOLED, STARTED),
    "SDXL inpaint": Case(
        unet.stable_diffusion_xl_inpaint,
        POOLED,
        {**STARTED, **SMALL, "mask_image": (IMAGE[:, :1] > 0.3).float()},
    ),
    "SDXL ControlNet": Case(unet.stable_diffusion_xl_controlnet, POOLED, {"image": IMAGE}),
    "Kolors": Case(unet.kolors, POOLED, repeats=False),
    "Kandinsky 2.2": Case(
        unet.kandinsky_2_2, {"image_embeds": (WIDTH,)}, SMALL, always_negative=True
    ),
    "SD3": Case(dit.stable_diffusion_3, WIDE, repeats=False),
    "Flux": Case(dit.flux, POOLED, latent=PACKED, **TRUE_CFG, repeats=False),
    "Chroma": Case(dit.chroma, MASKED, latent=PACKED, repeats=False),
    "PixArt-alpha": Case(dit.pixart_alpha, MASKED, UNBINNED, callback=False),
    "PixArt-Sigma": Case(dit.pixart_sigma, MASKED, UNBINNED, callback=False),
    "Sana": Case(dit.sana, MASKED, {**UNBINNED, "height": 128, "width": 128}, (4, 4, 4)),
    "AuraFlow": Case(dit.aura_flow, MASKED),
    "Lumina": Case(dit.lumina, MASKED, {**SQUARE, "clean_caption": False}, repeats=False),
    "Lumina2": Case(dit.lumina2, MASKED, repeats=False),
    "HunyuanDiT": Case(
        dit.hunyuan_dit, MASKED | {f"{it}_2": MASKED[it] for it in MASKED}, UNBINNED, repeats=False
    ),
    "CogView4": Case(dit.cogview4, WORDS, repeats=False),
    "Qwen-Image": Case(dit.qwen_image, QWEN, latent=PACKED, **TRUE_CFG),
    "Z-Image": Case(dit.z_image, WORDS, plain={"guidance_scale": 0.0}, lists=True),
    "Qwen-Image 2.1": Case(dit.qwen_image_2_1, QWEN, latent=PACKED, **TRUE_CFG),
    "Krea 2": Case(dit.krea2, LAYERED, latent=PACKED, plain={"guidance_scale": 0.0}),
    "Flux 2": Case(dit.flux2, WORDS, latent=PACKED, negative=False),
    "Flux 2 Klein": Case(dit.flux2_klein, WORDS, SMALL, PACKED),
    "Ovis-Image": Case(dit.ovis_image, WORDS, {**SQUARE, "negative_prompt": None}, PACKED),
    "AnimateDiff": Case(
        unet.animate_diff, WORDS, {**SQUARE, "num_frames": 3}, (4, 3, 8, 8), per_prompt=None
    ),
    "LTX": Case(dit.ltx, MASKED, NINE_FRAMES, (8, 4), per_prompt=VIDEOS, repeats=False),
    "Wan": Case(dit.wan, WORDS, NINE_FRAMES, (4, 3, 8, 8), per_prompt=VIDEOS, repeats=False),
    "CogVideoX": Case(dit.cogvideox, WORDS, NINE_FRAMES, (3, 4, 8, 8), per_prompt=None),
}
JOINT = ["SD3", "Flux", "Chroma", "AuraFlow", "CogView4", "Qwen-Image", "Flux 2", "Flux 2 Klein"]
JOINT += ["Ovis-Image", "CogVideoX"]  # whose blocks return tokens of the prompt
