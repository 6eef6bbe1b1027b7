"""Tiny pipelines that can be saved and loaded: random weights, with tokenizers, encoders and VAEs.

The networks and schedulers are those of `tiny_pipelines`. The other components have the classes of
real pipelines, except that all tokenizers use single letters as tokens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.helpers import tiny_transformers as dit, tiny_unets as unet
from tests.helpers.tiny_text import WIDTH

LETTERS = 128
SMALL: dict[str, Any] = {
    **{"vocab_size": LETTERS, "hidden_size": WIDTH, "intermediate_size": WIDTH},
    **{"num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8},
    **{"max_position_embeddings": 1024, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def save(name: str, folder: Path) -> None:
    """Save a pipeline, named as in `FOLDERS`, to a folder."""
    torch.manual_seed(0)
    build, parts = FOLDERS[name]
    pipeline = build()
    pipeline.register_modules(**parts())
    pipeline.save_pretrained(folder)


def letters(**more: Any) -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each letter."""
    names = ["<pad>", "<s>", "</s>", "<unk>"] + [chr(code) for code in range(4, LETTERS)]
    model = models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **special, **more
    )


def character_tokenizer() -> transformers.CLIPTokenizer:
    """A CLIP tokenizer without merges, so every character is a token."""
    characters = [chr(code) for code in range(33, 127)]
    names = [*characters, *(f"{character}</w>" for character in characters)]
    names += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {name: number for number, name in enumerate(names)}
    return transformers.CLIPTokenizer(vocabulary, [], model_max_length=32)


def clip(number: str = "", projects: bool = False) -> dict[str, Any]:
    tokenizer = character_tokenizer()
    kind = transformers.CLIPTextModelWithProjection if projects else transformers.CLIPTextModel
    config = transformers.CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        projection_dim=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        # the default ids belong to a tokenizer with 49,408 tokens
        **{f"{it}_token_id": getattr(tokenizer, f"{it}_token_id") for it in ("bos", "eos", "pad")},
    )
    return {f"tokenizer{number}": tokenizer, f"text_encoder{number}": kind(config)}


def t5(number: str = "", width: int = WIDTH) -> dict[str, Any]:
    config = transformers.T5Config(
        vocab_size=LETTERS, d_model=width, d_kv=8, d_ff=16, num_layers=1, num_heads=2
    )
    encoder = transformers.T5EncoderModel(config)
    return {f"tokenizer{number}": letters(), f"text_encoder{number}": encoder}


def decoder_only(kind: str, **more: Any) -> dict[str, Any]:
    """A decoder-only language model of transformers, and a tokenizer."""
    config = getattr(transformers, f"{kind}Config")(**SMALL, **more)
    encoder = getattr(transformers, f"{kind}Model")(config)
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return {"text_encoder": encoder, "tokenizer": letters(chat_template=template)}


def vae(channels: int = 4, **more: Any) -> dict[str, Any]:
    """A VAE with 8 pixels per latent."""
    return {"vae": unet.vae((4, 4, 4, 4), norm_num_groups=2, latent_channels=channels, **more)}


def flow_vae(channels: int = 4) -> dict[str, Any]:
    return vae(channels, scaling_factor=1.5, shift_factor=0.1, use_quant_conv=False)


def sana_vae() -> dict[str, Any]:
    """A VAE with 32 pixels per latent."""
    blocks = ("ResBlock",) * 6
    model = diffusers.AutoencoderDC(
        latent_channels=4,
        attention_head_dim=2,
        encoder_block_types=blocks,
        decoder_block_types=blocks,
        encoder_block_out_channels=(4,) * 6,
        decoder_block_out_channels=(4,) * 6,
        encoder_layers_per_block=(1,) * 6,
        decoder_layers_per_block=(1,) * 6,
    )
    return {"vae": model}


def qwen_image() -> dict[str, Any]:
    vae = diffusers.AutoencoderKLQwenImage(
        base_dim=4,
        z_dim=4,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    text = {name: value for name, value in SMALL.items() if name != "head_dim"}
    text["rope_scaling"] = {"type": "default", "mrope_section": [2, 1, 1]}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    vision["out_hidden_size"] = WIDTH
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    encoder = transformers.Qwen2_5_VLForConditionalGeneration(config)
    return {"vae": vae, "tokenizer": letters(), "text_encoder": encoder}


def bert() -> dict[str, Any]:
    config = transformers.BertConfig(**SMALL | {"num_hidden_layers": 1})
    return {"tokenizer": letters(), "text_encoder": transformers.BertModel(config)}


def sd3_text() -> dict[str, Any]:
    two = clip(projects=True) | clip("_2", projects=True)
    return two | t5("_3", 2 * WIDTH)


FOLDERS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "SD 1.5": (unet.stable_diffusion, lambda: {**vae(), **clip()}),
    "SD3": (dit.stable_diffusion_3, lambda: {**flow_vae(), **sd3_text()}),
    "Flux": (dit.flux, lambda: {**flow_vae(), **clip(), **t5("_2")}),
    "Chroma": (dit.chroma, lambda: {**flow_vae(), **t5()}),
    "PixArt-alpha": (lambda: dit.pixart_alpha(32), lambda: {**vae(), **t5()}),
    "PixArt-Sigma": (lambda: dit.pixart_sigma(32), lambda: {**vae(), **t5()}),
    "Sana": (lambda: dit.sana(16), lambda: {**sana_vae(), **decoder_only("Gemma2")}),
    "AuraFlow": (dit.aura_flow, lambda: {**vae(), **t5()}),
    "Lumina": (dit.lumina, lambda: {**vae(), **decoder_only("Gemma")}),
    "Lumina2": (lambda: dit.lumina2(512), lambda: {**flow_vae(), **decoder_only("Gemma2")}),
    "HunyuanDiT": (lambda: dit.hunyuan_dit(77, 256), lambda: {**vae(), **bert(), **t5("_2")}),
    "CogView4": (dit.cogview4, lambda: {**vae(), **decoder_only("Glm")}),
    "Qwen-Image": (dit.qwen_image, qwen_image),
    "Z-Image": (dit.z_image, lambda: {**flow_vae(), **decoder_only("Qwen3")}),
}
"""Name in `tiny_pipelines` -> the pipeline without text encoders and VAE, and these components."""
