"""The public names, by the module that defines each."""

from vendi_guidance.scores.alignment import (
    clip_score as clip_score,
    group_vendi as group_vendi,
    in_batch_similarity as in_batch_similarity,
    pairwise_distance as pairwise_distance,
    projection_spreads as projection_spreads,
    seed_identifiability as seed_identifiability,
)
from vendi_guidance.scores.bandwidth import median_distance as median_distance
from vendi_guidance.scores.intervals import Convergence as Convergence, convergence as convergence
from vendi_guidance.scores.modes import Mode as Mode, find_modes as find_modes
from vendi_guidance.scores.references import (
    ManifoldScores as ManifoldScores,
    frechet_distance as frechet_distance,
    kernel_distance as kernel_distance,
    manifold_scores as manifold_scores,
)
from vendi_guidance.scores.spectra import Exact as Exact, RandomFourier as RandomFourier
