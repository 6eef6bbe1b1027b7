"""What a report says beside its scores: what is left out and why, and whether images repeat."""

from collections.abc import Iterator, Mapping
from math import isfinite

from vendi_guidance.evaluation.analysis import LISTED, Analysis
from vendi_guidance.evaluation.embedding import Embedded
from vendi_guidance.evaluation.inputs import NEIGHBOURS, ScoreInputs
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.scores.groups import shuffled
from vendi_guidance.scores.intervals import CURVES_FROM
from vendi_guidance.scores.subsampling import ENOUGH, Subsamples
from vendi_guidance.storage.messages import counted

MOST_REFERENCES = 1000  # that subsamples are compared with, to save time; the same ones for all


def remarks_on(
    judged: Embedded, judges: Judges, found: Mapping[str, float], subsamples: Subsamples
) -> Iterator[str]:
    """A sentence that lists what is left out, with what it needs, and one for each setting that has
    no effect and each score of only some images."""
    inputs, settings, n = judged.inputs, judged.settings, len(judged.kept)
    labeled, real = settings.get("labeled", 0), settings.get("references", 0)
    size, zero = counted(n, "image"), "" if inputs.x.any(1).all() else "an image has zero features"
    timed = any("seconds" in row for row in judged.batch.rows or ())
    wanted = {
        "in_batch_similarity": (inputs.prompts is not None, zero or "2 images of a prompt"),
        "group_vendi": (inputs.group_size, zero or f"{inputs.group_size} images of a prompt"),
        "kernel_distance": (real, "2 of both"),
        "precision": (real, f"{NEIGHBOURS + 1} of both, as recall"),
        "fidelity": (judges.labels is not None, "prompts that ask for a known label"),
        "seconds_per_image": (timed, "all seconds"),
    }
    left_out = [] if subsamples.parts else [f"confidence intervals (they need {ENOUGH})"]
    left_out += [] if n >= CURVES_FROM else [f"convergence curves ({CURVES_FROM} images)"]
    needs = {name: why for name, (it, why) in wanted.items() if it and name not in found}
    needs |= {name: "not finite" for name, value in found.items() if not isfinite(value)}
    if left_out := left_out + [f"{MEASURES[name].title} ({why})" for name, why in needs.items()]:
        both = f"{size} and {counted(real, 'reference image')}" if real else size
        yield f"Left out for {both}: {', '.join(left_out)}."
    if (kept := inputs.truncation or 0) >= n:
        yield f"Truncation to {kept:,} eigenvalues has no effect: {size} have no more."
    if 0 < labeled < n:
        yield f"Prompts of {labeled:,} of {size} ask for a known label; only these have fidelity."
    if real > MOST_REFERENCES and subsamples.parts:
        yield f"Intervals of scores against references use {MOST_REFERENCES:,} of {real:,}."


def remarks_on_images(inputs: ScoreInputs, analysis: Analysis) -> Iterator[str]:
    """Sentences about the scores of reference images against the other ones, the best that as many
    generated images can have; about when images of a prompt repeat earlier ones, if the last
    quarter adds less than a tenth of the Vendi score; and about near-duplicates."""
    reference = inputs.reference
    count = 0 if reference is None else min(len(inputs), len(reference) // 2)
    if reference is not None and count > NEIGHBOURS:
        own, others = reference[shuffled(len(reference))].split([count, len(reference) - count])
        scores = ScoreInputs(own, inputs.kernel_x, reference=others).against_reference()
        named = ", ".join(f"{MEASURES[key].title} {MEASURES[key].format(it)}" for key, it in scores)
        yield f"{counted(count, 'reference image')} against the others: {named}."
    if (curve := analysis.convergence.get("within_prompt")) is not None:
        n, reached = int(curve.sizes[-1]), curve.reached()
        images = counted(reached, "image")
        start = f"After {images} of a prompt, new ones mostly repeat earlier ones"
        if 4 * reached > 3 * n:
            start = "New images of a prompt still differ from earlier ones"
        yield f"{start}: {reached} of {n} reach 90% of their Vendi score (mean over prompts)."
    if alike := len(analysis.near_duplicates):
        pairs = "at least " * (alike == LISTED) + counted(alike, "pair")
        if (sample := analysis.looked_at["modes"]) < len(inputs):
            pairs += f" in a random sample of {sample:,} images"
        yield f"Near-duplicates: {pairs}; see the page."
