"""Moves inside the network that a guider evaluates, in one run of a sampler."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch import nn

from vendi_guidance.adapter.moved import MovedBlocks

logger = logging.getLogger(__name__)


class Blocks(MovedBlocks):
    """The block that is moved, while `attached` lasts."""

    def __init__(self, guider: Any) -> None:
        network, thread = getattr(guider.inner_model, "diffusion_model", None), get_ident()
        networks = [network] if isinstance(network, nn.Module) else []
        super().__init__(networks, lambda: get_ident() == thread)
        if networks and not self.has_any:
            logger.info("%s has no known block: rounds move its images", type(network).__name__)

    @contextmanager
    def attached(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()
