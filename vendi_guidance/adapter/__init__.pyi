"""The public names, by the module that defines each."""

from vendi_guidance.adapter.image_space import (
    ImageSpace as ImageSpace,
    exemplar_features as exemplar_features,
)
