"""The public names, by the module that defines each."""

from vendi_guidance.evaluation.attributes import (
    Attribute as Attribute,
    load_attributes as load_attributes,
)
from vendi_guidance.evaluation.batches import Batch as Batch, as_batch as as_batch
from vendi_guidance.evaluation.embedding import ImageReader as ImageReader
from vendi_guidance.evaluation.judges import Judges as Judges
from vendi_guidance.evaluation.results import Comparison as Comparison
