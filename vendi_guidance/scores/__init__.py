"""Features in, numbers out."""

from vendi_guidance.lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
