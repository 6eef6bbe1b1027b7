"""The demo model in ComfyUI's classes; importing this needs ComfyUI and diffusers."""

from pathlib import Path
from typing import Any

import comfy.latent_formats
import comfy.model_base
import comfy.supported_models
import torch
from diffusers import StableDiffusionXLPipeline
from torch import Tensor

from scripts.comfyui.models import Conditioning, patcher

FOLDER = Path(__file__).parents[2] / "assets" / "demo-sdxl"


class DemoFormat(comfy.latent_formats.LatentFormat):
    scale_factor = 0.856


class Diffusers(torch.nn.Module):
    """A diffusers UNet with ComfyUI's interface; ComfyUI's own has more groups in its norms."""

    dtype = torch.float32

    def __init__(self, unet: torch.nn.Module, **_: Any) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, x: Tensor, t: Tensor, context: Tensor, y: Tensor, **_: Any) -> Tensor:
        size = torch.tensor([[64, 64, 0, 0, 64, 64]]).expand(len(x), 6)
        added = {"text_embeds": y, "time_ids": size}
        return self.unet(x, t, context, added_cond_kwargs=added).sample


class Demo:
    """The demo model as ComfyUI's MODEL (the attribute `model`), CLIP and VAE."""

    def __init__(self) -> None:
        self.pipeline = StableDiffusionXLPipeline.from_pretrained(FOLDER)
        config = comfy.supported_models.SDXL({"adm_in_channels": 128})
        config.latent_format = DemoFormat()
        config.sampling_settings = {"zsnr": True}

        class Model(comfy.model_base.BaseModel):
            def encode_adm(self, **given: Any) -> Tensor:
                return given["pooled_output"]

        unet = self.pipeline.unet
        kind = comfy.model_base.ModelType.V_PREDICTION
        model = Model(config, kind, unet_model=lambda **given: Diffusers(unet, **given))
        self.model = patcher(model)

    def tokenize(self, text: str) -> str:
        """Returns the text itself: CLIPTextEncode passes it to `encode_from_tokens_scheduled`."""
        return text

    @torch.no_grad()
    def encode_from_tokens_scheduled(self, text: str) -> Conditioning:
        tokens, _, pooled, _ = self.pipeline.encode_prompt(
            text, device="cpu", do_classifier_free_guidance=False
        )
        return [[tokens, {"pooled_output": pooled}]]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """(n, 64, 64, 3) images in [0, 1], as VAEDecode expects them."""
        pixels = self.pipeline.vae.decode(latents).sample
        return (pixels / 2 + 0.5).clamp(0, 1).movedim(1, -1)
