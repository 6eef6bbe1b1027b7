"""Features in, numbers out."""

from vendi_guidance.scores.functional import (
    cluster_rke as cluster_rke,
    cluster_vendi as cluster_vendi,
    conditional_rke as conditional_rke,
    conditional_vendi as conditional_vendi,
    information_rke as information_rke,
    information_vendi as information_vendi,
    intdiv as intdiv,
    rke as rke,
    vendi as vendi,
)
