"""Small models in ComfyUI's own classes; importing this needs ComfyUI."""

from dataclasses import MISSING, fields
from typing import Any, get_type_hints

import comfy.latent_formats
import comfy.model_base
import comfy.model_management
import comfy.model_patcher
import comfy.supported_models
import torch
from comfy.ldm.flux.model import FluxParams

Conditioning = list[list[Any]]

XL: dict[str, Any] = {
    **{"image_size": 32, "in_channels": 4, "out_channels": 4, "model_channels": 32},
    **{"num_res_blocks": [1, 1], "channel_mult": [1, 2], "legacy": False},
    **{"transformer_depth": [0, 1], "transformer_depth_output": [0, 0, 1, 1]},
    **{"transformer_depth_middle": 1, "num_head_channels": 16, "num_classes": "sequential"},
    **{"use_spatial_transformer": True, "use_linear_in_transformer": True},
    **{"context_dim": 32, "adm_in_channels": 32 + 6 * 256},
}
FLUX: dict[str, Any] = {
    **{"in_channels": 4, "out_channels": 4, "patch_size": 2, "axes_dim": [4, 6, 6]},
    **{"vec_in_dim": 32, "context_in_dim": 32, "hidden_size": 32, "mlp_ratio": 2.0},
    **{"num_heads": 2, "depth": 1, "depth_single_blocks": 1, "theta": 10000},
    **{"qkv_bias": True, "guidance_embed": False},
}
SMALL = {"in_channels": 16, "axes_dims": [4, 6, 6], "axes_lens": [64, 64, 64]}
NEWER: dict[str, tuple[str, dict[str, Any]]] = {
    "Z-Image": (
        "ZImage",
        {
            **{**SMALL, "dim": 256, "n_layers": 1, "n_refiner_layers": 1, "n_heads": 16},
            **{"n_kv_heads": 16, "multiple_of": 8, "qk_norm": True, "cap_feat_dim": 32},
            **{"z_image_modulation": True, "time_scale": 1000.0, "pad_tokens_multiple": 8},
        },
    ),
    "Qwen-Image": (
        "QwenImage",
        {
            **{"num_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2},
            **{"joint_attention_dim": 32, "axes_dims_rope": (4, 6, 6)},
        },
    ),
    "Krea 2": (
        "Krea2",
        {
            **{"features": 32, "tdim": 16, "txtdim": 32, "heads": 2, "kvheads": 2, "layers": 1},
            **{"txtlayers": 1, "txtheads": 2, "txtkvheads": 2},
        },
    ),
}
"""Models of today's templates: their class in ComfyUI and the size of a small network."""


def random_newer() -> dict[str, Any]:
    """Those of `NEWER` that this ComfyUI has, with random weights."""
    found = {}
    for name, (kind, sizes) in NEWER.items():
        if hasattr(comfy.supported_models, kind):
            config = getattr(comfy.supported_models, kind)(sizes)
            found[name] = patcher(randomised(config.get_model({})))
    return found


def random_xl() -> Any:
    """An SDXL with random weights, which predicts noise."""
    config = comfy.supported_models.SDXL(XL)
    return patcher(randomised(comfy.model_base.SDXL(config)))


def random_flux() -> Any:
    """A Flux with random weights, which predicts velocities."""
    config = comfy.supported_models.Flux(flux_parameters())
    config.latent_format = comfy.latent_formats.SD15()  # 4 channels
    return patcher(randomised(comfy.model_base.Flux(config)))


def flux_parameters() -> dict[str, Any]:
    """`FLUX`, as far as this ComfyUI has its parameters; 0, False or [] for other required ones."""
    types = get_type_hints(FluxParams)
    return {
        field.name: FLUX.get(field.name, types[field.name]())
        for field in fields(FluxParams)
        if field.name in FLUX or field.default is MISSING
    }


def randomised(model: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    for name, weights in model.diffusion_model.named_parameters():
        values = torch.randn(weights.shape, generator=generator)
        if weights.ndim > 1:
            weights.data = values * weights[0].numel() ** -0.5
        else:  # scales of norms are about 1
            weights.data = 0.1 * values + name.endswith(("weight", "scale"))
    return model


def patcher(model: Any) -> Any:
    """A ModelPatcher on the CPU, which is what ComfyUI's MODEL type holds."""
    device = torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(model.eval(), device, device)


def random_prompt(number: int) -> Conditioning:
    """A prompt for the random models."""
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randn(1, 7, 32, generator=generator)
    return [[tokens, {"pooled_output": torch.randn(1, 32, generator=generator)}]]
