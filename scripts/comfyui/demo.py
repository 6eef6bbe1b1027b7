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

ASSETS = Path(__file__).parents[2] / "assets"


class Diffusers(torch.nn.Module):
    """A diffusers UNet with ComfyUI's interface; ComfyUI's own has more groups in its norms."""

    dtype = torch.float32

    def __init__(self, unet: Any, pixels: int) -> None:
        super().__init__()
        self.unet = unet
        self.size = torch.tensor([[pixels, pixels, 0, 0, pixels, pixels]])

    def forward(self, x: Tensor, t: Tensor, context: Tensor, y: Tensor, **_: Any) -> Tensor:
        size = self.size.expand(len(x), 6)
        added = {"text_embeds": y, "time_ids": size}
        return self.unet(x, t, context, added_cond_kwargs=added).sample


class Demo:
    """A demo model as ComfyUI's MODEL (the attribute `model`), CLIP and VAE.

    Attributes:
        size: width of its latents.
    """

    def __init__(self, name: str = "demo-sdxl") -> None:
        self.pipeline = StableDiffusionXLPipeline.from_pretrained(ASSETS / name)
        unet, vae, scheduler = self.pipeline.unet, self.pipeline.vae, self.pipeline.scheduler
        self.size = unet.config.sample_size
        width = unet.add_embedding.linear_1.in_features - 6 * unet.config.addition_time_embed_dim
        config = comfy.supported_models.SDXL({"adm_in_channels": width})
        config.latent_format = comfy.latent_formats.LatentFormat()
        config.latent_format.scale_factor = vae.config.scaling_factor
        config.sampling_settings = {"zsnr": scheduler.config.rescale_betas_zero_snr}

        class Model(comfy.model_base.BaseModel):
            def encode_adm(self, **given: Any) -> Tensor:
                return given["pooled_output"]

        kinds = comfy.model_base.ModelType
        is_v = scheduler.config.prediction_type == "v_prediction"
        network = Diffusers(unet, vae.config.sample_size)
        kind = kinds.V_PREDICTION if is_v else kinds.EPS
        self.model = patcher(Model(config, kind, unet_model=lambda **given: network))

    def tokenize(self, text: str) -> str:
        """Returns the text itself: CLIPTextEncode passes it to `encode_from_tokens_scheduled`."""
        return text

    @torch.no_grad()
    def encode_from_tokens_scheduled(self, text: str) -> Conditioning:
        tokens, _, pooled, _ = self.pipeline.encode_prompt(
            text, device="cpu", do_classifier_free_guidance=False
        )
        known = 0 if not text and self.pipeline.config.force_zeros_for_empty_prompt else 1
        return [[known * tokens, {"pooled_output": known * pooled}]]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """(n, height, width, 3) images in [0, 1], as VAEDecode expects them."""
        pixels = self.pipeline.vae.decode(latents).sample
        return (pixels / 2 + 0.5).clamp(0, 1).movedim(1, -1)
