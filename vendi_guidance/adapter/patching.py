"""Temporary wrappers around a method of one object, for one call or thread only.

All wrappers of a method share one replacement of it, so that overlapping calls may begin and end in
any order. `diffusers.hooks` (0.42) does not allow this: removing a hook with a `new_forward` also
drops the one registered after it, and removing that one brings the first one back. Hooks of a
compiled network may also end up inside the compiled code.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from inspect import signature
from threading import RLock
from typing import Any

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

_changing = RLock()  # reentrant: the garbage collector may end a call anywhere


@contextmanager
def patched(target: Any, name: str, wrap: Wrap) -> Iterator[None]:
    """While this context lasts, calls of the method `target.name` go to `wrap(method)`."""
    with _changing:
        shared = getattr(vars(target).get(name), "replacement", None)
        if shared is None or shared.target is not target:
            shared = _Replacement(target, name)
        shared.wraps = (*shared.wraps, wrap)
    try:
        yield
    finally:
        with _changing:
            shared.wraps = tuple(it for it in shared.wraps if it is not wrap)
            if not shared.wraps:
                shared.undo()


def entry_of(module: Any) -> str:
    """The method of a network or layer to wrap: the outermost one that is not compiled itself."""
    compiled = "_compiled_call_impl"  # set by `module.compile()`
    return "forward" if getattr(module, compiled, None) is None else compiled


class _Replacement:
    """Replaces a method, as an attribute of the object, while the method has wrappers."""

    def __init__(self, target: Any, name: str) -> None:
        inner = getattr(target, name)
        update_wrapper(self, inner)
        self.__signature__ = signature(inner)  # pipelines inspect a scheduler's step
        self.replacement = self  # `update_wrapper` copies it to wrappers around this one
        self.target = target
        self.wraps: tuple[Wrap, ...] = ()  # immutable, because calls read it without the lock
        self._name = name
        self._inner = inner
        self._before = vars(target).get(name)  # set if the method was an attribute already
        setattr(target, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        method = self._inner
        for wrap in self.wraps:
            method = wrap(method)
        return method(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy of the object gets its class's method. A copy of the object's attributes alone,
        which some pipelines make to restore a scheduler later, keeps this replacement."""
        copied = memo.get(id(self.target))
        return self if copied is None else getattr(copied, self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.target, self._name)

    def undo(self) -> None:
        """Restore the method. Inside a later wrapper of somebody else, stay and pass calls on."""
        if vars(self.target).get(self._name) is self:
            delattr(self.target, self._name)
            if self._before is not None:
                setattr(self.target, self._name, self._before)
