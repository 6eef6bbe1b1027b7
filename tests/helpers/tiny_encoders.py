"""Saves tiny encoders with random weights in the format of their libraries."""

import json
from pathlib import Path

import open_clip
import torch
from safetensors.torch import save_file
from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

from tests.helpers.tiny_folders import bert


def save_dinov2(folder: Path) -> None:
    """Save a DINOv2 that resizes images to 32 pixels and crops them to 28."""
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    Dinov2Model(Dinov2Config(image_size=28, patch_size=14, **shape)).save_pretrained(folder)
    BitImageProcessor(
        size={"shortest_edge": 32},
        crop_size={"height": 28, "width": 28},
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    ).save_pretrained(folder)


def save_open_clip(folder: Path, **preprocessing: object) -> None:
    """Save a CLIP for images of 32 pixels, with optional preprocessing settings."""
    tower = {"layers": 1, "width": 16}
    config = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "patch_size": 8, "head_width": 8, **tower},
        "text_cfg": {"context_length": 12, "vocab_size": 49408, "heads": 2, **tower},
    }
    about = {"model_cfg": config, "preprocess_cfg": preprocessing}
    (folder / "open_clip_config.json").write_text(json.dumps(about))
    torch.manual_seed(0)
    save_file(open_clip.CLIP(**config).state_dict(), folder / "open_clip_model.safetensors")


def save_bert(folder: Path) -> None:
    """Save a text encoder of transformers, without settings of sentence-transformers."""
    torch.manual_seed(0)
    for part in bert().values():
        part.save_pretrained(folder)
