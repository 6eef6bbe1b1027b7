"""Tiny modular pipelines with random weights: SDXL, and Anima, of which there is no other."""

from collections.abc import Sequence
from typing import Any

import diffusers
import torch
from diffusers.modular_pipelines.anima import before_denoise as anima_steps, denoise as anima_loop
from diffusers.modular_pipelines.stable_diffusion_xl.modular_blocks_stable_diffusion_xl import (
    StableDiffusionXLCoreDenoiseStep,
)
from torch import Tensor

from tests.helpers.tiny_pipelines import NEGATIVE, POOLED, WORDS, one
from tests.helpers.tiny_text import WIDTH
from tests.helpers.tiny_unets import XL, scheduler, unet, vae


class Modular:
    """Blocks from embeddings to latents, and what to call them with.

    Attributes:
        blocks: before `init_pipeline`; they may be changed.
        latent: the shape of one latent.
    """

    def __init__(self, blocks: Any, components: Any, takes: Any, latent: Any, fixed: Any) -> None:
        self.blocks = blocks
        self.latent = latent
        self._components = components
        self._takes = takes
        self._fixed = fixed

    def make(self, cfg: float = 3.0) -> Any:
        """The pipeline, with the same weights each time."""
        torch.manual_seed(0)
        pipe = self.blocks.init_pipeline()
        guider = diffusers.ClassifierFreeGuidance(guidance_scale=cfg)
        pipe.update_components(guider=guider, **self._components())
        return pipe

    def embeddings(self, prompts: Sequence[int]) -> dict[str, Tensor]:
        return {
            name: torch.stack([one(name, prompt, shape) for prompt in prompts])
            for name, shape in self._takes.items()
        }

    def generate(
        self, pipe: Any, prompts: Sequence[int], steps: int = 6, **more: Any
    ) -> torch.Tensor:
        """Latents of a call from seed 0."""
        negative = self.embeddings([NEGATIVE] * len(prompts))
        given = self.embeddings(prompts) | {f"negative_{name}": it for name, it in negative.items()}
        generator = torch.Generator().manual_seed(0)
        called = {"num_inference_steps": steps, "generator": generator, "output": "latents"}
        return pipe(**given | self._fixed | called | more)


def stable_diffusion_xl() -> Modular:
    def components() -> dict[str, Any]:
        return {"unet": unet(**XL), "vae": vae(), "scheduler": scheduler()}

    size = {"height": 16, "width": 16}
    blocks = StableDiffusionXLCoreDenoiseStep()
    return Modular(blocks, components, POOLED, (4, 8, 8), size)


def anima() -> Modular:
    def components() -> dict[str, Any]:
        transformer = diffusers.CosmosTransformer3DModel(
            in_channels=4,
            out_channels=4,
            num_attention_heads=2,
            attention_head_dim=16,
            num_layers=1,
            mlp_ratio=2,
            text_embed_dim=WIDTH,
            adaln_lora_dim=4,
            max_size=(4, 16, 16),
            patch_size=(1, 2, 2),
            rope_scale=(1.0, 1.0, 1.0),
            concat_padding_mask=True,
            extra_pos_embed_type=None,
        )
        flow = diffusers.FlowMatchEulerDiscreteScheduler()
        return {"transformer": transformer, "scheduler": flow}

    # its text conditioner would need real token ids
    blocks = diffusers.SequentialPipelineBlocks.from_blocks_dict(
        {
            "input": anima_steps.AnimaTextInputStep(),
            "prepare_latents": anima_steps.AnimaPrepareLatentsStep(),
            "set_timesteps": anima_steps.AnimaSetTimestepsStep(),
            "denoise": anima_loop.AnimaDenoiseStep(),
        }
    )
    return Modular(blocks, components, WORDS, (4, 1, 8, 8), {"height": 64, "width": 64})
