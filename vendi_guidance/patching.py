"""Wrapping a method of one object for a while, in one call or thread and not in others.

All wrappers of a method share one replacement of it, so calls that overlap may begin and end in any
order. `diffusers.hooks` cannot be used for this (0.42): removing a hook with a `new_forward` drops
the one registered after it, whose removal brings the first one back; and the hooks of a compiled
network may land inside the compiled code.
"""

from collections.abc import Callable
from functools import update_wrapper
from inspect import signature
from threading import Lock
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

_lock = Lock()


class Patch:
    """Wraps `target.name` between `apply` and `remove`; a second call of either does nothing.

    Args:
        target: the object whose method it is.
        name: of the method.
        wrap: makes the replacement from the method as it is.
        concerns: asked at each call of the method; where it is False the wrapper is left out.
    """

    def __init__(
        self, target: Any, name: str, wrap: Wrap, concerns: Callable[[], bool] = lambda: True
    ) -> None:
        self.wrap = wrap
        self.concerns = concerns
        self._target, self._name = target, name
        self._replacement: _Replacement | None = None

    def apply(self) -> None:
        with _lock:
            if self._replacement is None:
                known = getattr(vars(self._target).get(self._name), "replacement", None)
                if known is None or known.target is not self._target:
                    known = _Replacement(self._target, self._name)
                known.patches = (*known.patches, self)
                self._replacement = known

    def remove(self) -> None:
        with _lock:
            if self._replacement is not None:
                known, self._replacement = self._replacement, None
                known.patches = tuple(it for it in known.patches if it is not self)
                if not known.patches:
                    known.undo()


class _Replacement:
    """What stands in for a method while there are patches of it: an attribute of the object."""

    def __init__(self, target: Any, name: str) -> None:
        inner = getattr(target, name)
        update_wrapper(self, inner)
        self.__signature__ = signature(inner)  # pipelines look at a scheduler's step
        self.replacement = self  # `update_wrapper` hands it on to wrappers around this one
        self.target = target
        self.patches: tuple[Patch, ...] = ()  # replaced as a whole: calls read it without a lock
        self._name = name
        self._inner = inner
        self._before = vars(target).get(name)  # a method that the object had of its own
        setattr(target, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        method = self._inner
        for patch in self.patches:
            if patch.concerns():
                method = patch.wrap(method)
        return method(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the object has its class's method. Pipelines that copy a scheduler's attributes
        to set them again later get this one."""
        copied = memo.get(id(self.target))
        return self if copied is None else getattr(copied, self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.target, self._name)

    def undo(self) -> None:
        """Restore the method, unless a later wrapper stands around ours, which then passes on."""
        if vars(self.target).get(self._name) is self:
            delattr(self.target, self._name)
            if self._before is not None:
                setattr(self.target, self._name, self._before)
