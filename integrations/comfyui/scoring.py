"""How diverse a batch of images is: a number, and a picture that shows why."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from vendi_guidance import Gaussian, vendi

CLIP_SIGMA = 0.4
"""The bandwidth for unit-length CLIP features, which lie 0.5 to 1 apart for different subjects."""

COLOUR_SIGMA = 0.1
"""The bandwidth without CLIP: a tenth of the range of colours, root mean square."""

THUMBNAIL = 16
"""Height and width at which colours are compared, in pixels."""

CELL = 64
"""Height and width of a cell of the picture, in pixels."""


def score(images: Tensor, embeddings: Tensor | None = None) -> tuple[str, Tensor]:
    """The effective number of different images in a batch, and their similarities.

    Args:
        images: (n, h, w, 3) in [0, 1].
        embeddings: (n, m) CLIP features of the images; None compares colours.

    Returns:
        A text, and a picture (1, (n + 1) 64, (n + 1) 64, 3): rows and columns are images, cells
        are white for equal ones and black for different ones.
    """
    if embeddings is None:
        features, kernel, by = _colours(images), Gaussian(COLOUR_SIGMA), "colours"
    else:
        unit = torch.nn.functional.normalize(embeddings.float(), dim=1)
        features, kernel, by = unit, Gaussian(CLIP_SIGMA), "CLIP features"
    similar = kernel(features, features).cpu()
    count = float(vendi(features, kernel))
    text = f"{count:.2f} different images of {len(images)} (Vendi score of {by})"
    if len(images) > 1:
        others = similar.clone().fill_diagonal_(-1)
        first, second = divmod(int(others.argmax()), len(images))
        text += f"\nmost alike: {first + 1} and {second + 1}, similarity {others.max():.2f}"
    return text, _picture(images.float().cpu(), similar.float())


def _colours(images: Tensor) -> Tensor:
    """(n, d) thumbnails, whose distance is the root mean square difference of their colours."""
    channels = images.float().movedim(-1, 1)[:, :3]
    rows = interpolate(channels, (THUMBNAIL, THUMBNAIL), mode="area").flatten(1)
    return rows / rows.shape[1] ** 0.5


def _picture(images: Tensor, similar: Tensor) -> Tensor:
    n = len(images)
    small = interpolate(images.movedim(-1, 1)[:, :3], (CELL, CELL), mode="area").movedim(1, -1)
    grid = torch.ones(n + 1, n + 1, CELL, CELL, 3)
    grid[0, 1:], grid[1:, 0] = small, small
    grid[1:, 1:] = similar.clamp(0, 1).view(n, n, 1, 1, 1)
    return grid.movedim(2, 1).reshape(1, (n + 1) * CELL, (n + 1) * CELL, 3)
