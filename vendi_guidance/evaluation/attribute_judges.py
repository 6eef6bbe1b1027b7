"""The judges' module until version 0.3, whose names can still be imported."""

from vendi_guidance.evaluation.attributes import ProbeJudge, ZeroShot

__all__ = ["ProbeJudge", "ZeroShot"]
