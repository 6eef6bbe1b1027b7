"""The public names, by the module that defines each."""

from vendi_guidance.features.base import (
    FromFunction as FromFunction,
    Labels as Labels,
    load_features as load_features,
)
from vendi_guidance.features.encoders import (
    dinov2_encoder as dinov2_encoder,
    open_clip_encoder as open_clip_encoder,
)
from vendi_guidance.features.images import open_image_embedder as open_image_embedder
from vendi_guidance.features.prompts import open_prompt_embedder as open_prompt_embedder
