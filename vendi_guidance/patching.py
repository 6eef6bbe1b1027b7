"""Wrapping a method of one object for a while, in one call or thread and not in others.

All wrappers of a method share one replacement of it, so calls that overlap may begin and end in any
order. `diffusers.hooks` cannot be used for this (0.42): removing a hook with a `new_forward` drops
the one registered after it, whose removal brings the first one back; and the hooks of a compiled
network may land inside the compiled code.
"""

from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, signature
from threading import Lock
from types import MethodType
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
    """What stands in for a method while there are patches of it."""

    def __init__(self, target: Any, name: str) -> None:
        self.target = target
        self.patches: tuple[Patch, ...] = ()  # replaced as a whole: calls read it without a lock
        self._name = name
        self._before = vars(target).get(name)  # a method that the object had of its own
        inner = getattr(target, name)

        def replacement(owner: Any, *args: Any, **kwargs: Any) -> Any:
            if owner is not target:  # a deep copy, which brought this along
                return getattr(type(owner), name)(owner, *args, **kwargs)
            method = inner
            for patch in self.patches:
                if patch.concerns():
                    method = patch.wrap(method)
            return method(*args, **kwargs)

        own = Parameter("self", Parameter.POSITIONAL_ONLY)
        given = signature(inner)  # pipelines look at the parameters of a scheduler's step
        update_wrapper(replacement, inner)
        vars(replacement)["replacement"] = self
        vars(replacement)["__signature__"] = given.replace(
            parameters=[own, *given.parameters.values()]
        )
        self._method = MethodType(replacement, target)
        setattr(target, name, self._method)

    def undo(self) -> None:
        """Restore the method, unless a later wrapper stands around ours, which then passes on."""
        if vars(self.target).get(self._name) is self._method:
            delattr(self.target, self._name)
            if self._before is not None:
                setattr(self.target, self._name, self._before)
