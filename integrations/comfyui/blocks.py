"""Moves inside the network that a guider evaluates, in one run of a sampler."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch import nn

from vendi_guidance.adapter.moved import MovedBlocks
from vendi_guidance.adapter.patching import Patch

logger = logging.getLogger(__name__)


class Blocks(MovedBlocks):
    """The block that is moved, while `attached` lasts.

    ComfyUI evaluates conditionings in one batch or several, in any order, and says for each which
    of the guider's lists of conditionings it is from.

    Attributes:
        own: index of the list with the prompts, as the guider evaluates them.
    """

    own = 0

    def __init__(self, guider: Any) -> None:
        network, thread = getattr(guider.inner_model, "diffusion_model", None), get_ident()
        networks = [network] if isinstance(network, nn.Module) else []

        def here() -> bool:
            return get_ident() == thread

        super().__init__(networks, here)
        self._patches += [Patch(it, "forward", self._watch, here) for it in networks]
        self._lists: Sequence[int] = ()
        if networks and not self.has_any:
            logger.info("%s has no known block: rounds move its images", type(network).__name__)

    @contextmanager
    def attached(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.move_inside(None)

    def find_own(self, conds: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Find `own` from the lists that the guider evaluates and from all that it has."""
        prompts = given.get("positive")
        self.own = next((i for i, each in enumerate(conds) if each is prompts), 0)

    def own_rows(self, rows: int, count: int) -> slice | None:
        """See `MovedBlocks.own_rows`. Rows of another list if the network gets those alone."""
        if rows != len(self._lists) * count:
            return None
        place = self._lists.index(self.own) if self.own in self._lists else 0
        return slice(place * count, (place + 1) * count)

    def _watch(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(*args: Any, **named: Any) -> Any:
            self._lists = (named.get("transformer_options") or {}).get("cond_or_uncond", ())
            return forward(*args, **named)

        return evaluate
