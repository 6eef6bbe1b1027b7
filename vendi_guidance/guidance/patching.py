"""Replacing a method of one object for a while."""

from collections.abc import Callable
from typing import Any


class Patch:
    """Replaces `target.name` between `apply` and `remove`; a second call of either does nothing.

    Args:
        target: the object whose method it is.
        name: of the method.
        wrap: makes the replacement from the method as it is.
    """

    def __init__(
        self, target: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        self._target, self._name, self._wrap = target, name, wrap
        self._ours: Callable[..., Any] | None = None
        self._before: Any = None  # a method that the object had of its own

    @property
    def is_on(self) -> bool:
        return self._ours is not None

    def apply(self) -> None:
        if self._ours is None:
            self._before = vars(self._target).get(self._name)
            self._ours = self._wrap(getattr(self._target, self._name))
            setattr(self._target, self._name, self._ours)

    def remove(self) -> None:
        # a later wrapper around ours stays, and ours has to pass on
        if self._ours is not None and vars(self._target).get(self._name) is self._ours:
            delattr(self._target, self._name)
            if self._before is not None:
                setattr(self._target, self._name, self._before)
        self._ours = self._before = None
