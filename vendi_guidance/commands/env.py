"""Print the versions and devices that a bug report needs, as text that can be pasted.

It holds no paths, no names of users or machines, and no environment variables.
"""

import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Any

import click
from packaging.requirements import Requirement

from vendi_guidance.commands.cli import Command

PACKAGE = "vendi-guidance"


@click.command(cls=Command, help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def main(as_json: bool) -> None:
    found = environment()
    click.echo(json.dumps(found, indent=2) if as_json else as_text(found))


def environment() -> dict[str, Any]:
    """What this Python has: versions are None for what is not installed.

    Raises:
        ImportError: the package runs from its sources without being installed.
    """
    try:
        needed = [Requirement(line) for line in requires(PACKAGE) or ()]
    except PackageNotFoundError as error:
        raise ImportError(
            f'{PACKAGE} is not installed: run "pip install ." in its clone'
        ) from error
    always = [requirement for requirement in needed if applies(requirement, "")]
    extras = {
        extra: versions(r for r in needed if r not in always and applies(r, extra))
        for extra in metadata(PACKAGE).get_all("Provides-Extra") or ()
    }
    return {
        PACKAGE: installed(PACKAGE),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "devices": devices(),
        "packages": versions(always),
        # an extra that names this package is a bundle of the others
        "extras": {extra: found for extra, found in extras.items() if PACKAGE not in found},
    }


def applies(requirement: Requirement, extra: str) -> bool:
    """Whether a requirement counts here with this extra; "" is none."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def versions(requirements: Iterable[Requirement]) -> dict[str, str | None]:
    """The installed version of each requirement, by its name."""
    return {requirement.name: installed(requirement.name) for requirement in requirements}


def installed(name: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def devices() -> list[str]:
    """What torch can compute on, the CPU first."""
    cpu = f"cpu: {platform.machine()}, {os.cpu_count()} cores"
    try:
        import torch

        from vendi_guidance.runs.precision import computes_bfloat16
    except (ImportError, OSError):
        return [cpu, "torch cannot be imported"]
    bfloat16 = "computes bfloat16" if computes_bfloat16() else "emulates bfloat16"
    found = [f"{cpu}, {torch.get_num_threads()} threads, {bfloat16}"]
    runtime = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        found.append(f"cuda:{index}: {card.name}, {card.total_memory / 2**30:.0f} GiB, {runtime}")
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def as_text(found: dict[str, Any]) -> str:
    """Two columns, a line for each thing."""
    lines = [(name, found[name]) for name in (PACKAGE, "Python", "platform")]
    lines += [("device", device) for device in found["devices"]]
    lines += [(name, known or "not installed") for name, known in found["packages"].items()]
    for extra, members in found["extras"].items():
        said = [f"{name} {known or '(not installed)'}" for name, known in members.items()]
        lines.append((f"[{extra}]", ", ".join(said)))
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
