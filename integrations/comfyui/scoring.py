"""How diverse a batch of images is: its Vendi score, and an image of the similarities."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from vendi_guidance import Gaussian, vendi

CLIP_SIGMA = 0.4
"""Bandwidth for unit-length CLIP features, which are 0.5 to 1 apart for different subjects."""

COLOUR_SIGMA = 0.1
"""Bandwidth without CLIP: a root mean square difference of a tenth of the range of colours."""

THUMBNAIL = 16
"""Height and width at which colours are compared, in pixels."""

CELL = 64
"""Height and width of a cell of the similarity image, in pixels."""


def score(images: Tensor, embeddings: Tensor | None = None) -> tuple[str, Tensor]:
    """The effective number of different images in a batch, and their similarities.

    Args:
        images: (n, h, w, 3) in [0, 1].
        embeddings: (n, m) CLIP features of the images; None compares colours.

    Returns:
        A text, and an image (1, (n + 1) 64, (n + 1) 64, 3) whose rows and columns are the images:
        a cell is white if two images are equal, and black if they have nothing in common.
    """
    if embeddings is None:
        features, kernel, compared = _colours(images), Gaussian(COLOUR_SIGMA), "colours"
    else:
        features = torch.nn.functional.normalize(embeddings.float(), dim=1)
        kernel, compared = Gaussian(CLIP_SIGMA), "CLIP features"
    similarities = kernel(features, features).cpu()
    count = float(vendi(features, kernel))
    text = f"{count:.2f} different images of {len(images)} (Vendi score of {compared})"
    if len(images) > 1:
        pairs = similarities.clone().fill_diagonal_(-1)
        first, second = divmod(int(pairs.argmax()), len(images))
        text += f"\nmost alike: {first + 1} and {second + 1}, similarity {pairs.max():.2f}"
    return text, _similarity_image(images.float().cpu(), similarities.float())


def _colours(images: Tensor) -> Tensor:
    """(n, d) thumbnails; the distance of two is their root mean square difference in colour."""
    channels = images.float().movedim(-1, 1)[:, :3]
    rows = interpolate(channels, (THUMBNAIL, THUMBNAIL), mode="area").flatten(1)
    return rows / rows.shape[1] ** 0.5


def _similarity_image(images: Tensor, similarities: Tensor) -> Tensor:
    n = len(images)
    small = interpolate(images.movedim(-1, 1)[:, :3], (CELL, CELL), mode="area").movedim(1, -1)
    grid = torch.ones(n + 1, n + 1, CELL, CELL, 3)
    grid[0, 1:], grid[1:, 0] = small, small
    grid[1:, 1:] = similarities.clamp(0, 1).view(n, n, 1, 1, 1)
    return grid.movedim(2, 1).reshape(1, (n + 1) * CELL, (n + 1) * CELL, 3)
