"""What a visitor takes away: one zip file of images and their report."""

from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

from vendi_guidance.app.session import Generation
from vendi_guidance.runs.manifest import MANIFEST
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.imagefolder import METADATA, TIMINGS

REPORT = "report"
PAGE = "report.html"


def pack(generation: Generation) -> Path:
    """A zip file of the finished images: an imagefolder of each kind, and the report if they are
    scored.

    Raises:
        ValueError: there is no finished image.
        OSError: it cannot be written.
    """
    arms = {name: arm for name, arm in generation.arms.items() if arm.done}
    if not arms:
        raise ValueError("There are no images yet: generate some first.")
    path = generation.folder / "images.zip"
    report = generation.folder / REPORT
    is_reported = (report / PAGE).exists()  # the page is written last
    if generation.comparison is not None and not is_reported:
        generation.comparison.save(report)
    with whole_file(path) as temporary, ZipFile(temporary, "w", ZIP_STORED) as packed:
        for name, arm in arms.items():
            beside = (arm.folder / one for one in (METADATA, TIMINGS, MANIFEST))
            for file in (*beside, *arm.paths()):
                packed.write(file, f"{name}/{file.name}")
        for file in sorted(report.iterdir()) if report.exists() else ():
            packed.write(file, f"{REPORT}/{file.name}")
    return path
