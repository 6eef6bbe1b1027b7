"""How faithful a batch is to its prompts, and how much its pictures repeat one another.

Some scores must be told by a probe what a picture shows. A picture's *look* is what its prompt left
open: for the demo's emoji, the vendor's style and the skin tone.
"""

from collections.abc import Sequence

from vendi_guidance.embedders import Looks
from vendi_guidance.kernels import Cosine, Features, as_features


def asked_concepts(prompts: Sequence[str], concepts: Sequence[str]) -> list[str | None]:
    """The concept that each prompt asks for: its words before the first comma, in any case.

    Args:
        prompts: n prompts, such as "Waving hand, dark skin tone".
        concepts: the names that are known.

    Returns:
        n names out of `concepts`; None where a prompt names none of them.
    """
    by_words = {concept.casefold(): concept for concept in concepts}
    return [by_words.get(prompt.split(",")[0].strip().casefold()) for prompt in prompts]


def prompt_fidelity(asked: Sequence[str | None], seen: Looks) -> float | None:
    """The share of pictures that show what was asked for, in [0, 1].

    Args:
        asked: n concepts (see `asked_concepts`); pictures with None are left out.
        seen: what the n pictures show.

    Returns:
        The share, or None if nothing known was asked for.

    Raises:
        ValueError: `asked` and `seen` differ in n.
    """
    _check_lengths(asked, seen.concepts)
    right = [a == s for a, s in zip(asked, seen.concepts, strict=True) if a is not None]
    return sum(right) / len(right) if right else None


def looks_by_prompt(
    prompts: Sequence[str], asked: Sequence[str | None], seen: Looks
) -> dict[str, int]:
    """How many different looks were found for each prompt.

    A look is a (vendor, tone) pair; only pictures that show what was asked for count.

    Args:
        prompts: n prompts; equal ones belong together.
        asked: n concepts (see `asked_concepts`); prompts with None are left out.
        seen: what the n pictures show.

    Raises:
        ValueError: `prompts`, `asked` and `seen` differ in n.
    """
    _check_lengths(prompts, asked)
    _check_lengths(prompts, seen.concepts)
    looks: dict[str, set[tuple[str, str]]] = {}
    for prompt, concept, shown, *look in zip(prompts, asked, *seen, strict=True):
        if concept is not None:
            found = looks.setdefault(prompt, set())
            if shown == concept:
                found.add((look[0], look[1]))
    return {prompt: len(found) for prompt, found in looks.items()}


def in_batch_similarity(x: Features, prompts: Sequence[str]) -> float | None:
    """Mean cosine between different pictures of the same prompt, in [-1, 1]; lower is more diverse.

    The mean is over all such pairs, so a prompt with more pictures has more weight.

    Args:
        x: (n, d) features of the pictures.
        prompts: n prompts; equal ones belong together.

    Returns:
        The mean, or None if no two pictures share a prompt.

    Raises:
        ValueError: x has other than n rows, is malformed (see `kernels.as_features`), or holds a
            zero vector.
    """
    unit = Cosine().unit(as_features(x).double())
    _check_lengths(prompts, range(len(unit)))
    rows: dict[str, list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows.setdefault(prompt, []).append(row)
    total, pairs = 0.0, 0
    for group in rows.values():
        # |sum of unit vectors|^2 is the sum over all pairs, each item with itself included
        total += float(unit[group].sum(dim=0).square().sum()) - len(group)
        pairs += len(group) * (len(group) - 1)
    return total / pairs if pairs else None


def _check_lengths(one: Sequence, other: Sequence) -> None:
    if len(one) != len(other):
        raise ValueError(f"got {len(one)} and {len(other)} items for the same pictures")
