"""The judges' module until version 0.3, whose names can still be imported."""

from vendi_guidance.evaluation.attributes import Calibrated, ProbeJudge, ZeroShot

__all__ = ["Calibrated", "ProbeJudge", "ZeroShot"]
