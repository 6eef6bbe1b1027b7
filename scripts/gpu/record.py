"""Rows of tables as they are measured, and the tables of a page, a section for each machine."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from scripts.benchmarks.measuring import Task, cell, machine, save_text, table
from scripts.comparison.choose import code, commit
from vendi_guidance.storage.files import read_object, whole_file

ROWS = "rows.json"
HEADING, SECTION = "## On GPUs\n\n", "\n\n### "
OLD = " †"
"""Marks rows of an earlier version."""


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows measured so far."""
    rows: list[dict[str, Any]] = read_object(folder / ROWS).get("rows", [])
    return rows


class Record:
    """The rows in a folder, and what further ones are measured with."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        self.path, self.rows = folder / ROWS, read(folder)
        try:
            version = commit()
        except (OSError, subprocess.CalledProcessError):  # no repository
            version = f"code {code()}"
        self.by = {"machine": machine(device), "version": version}

    def has(self, task: Task) -> bool:
        """Whether this version has measured the row on this machine."""
        wanted = {**self.by, "table": task.table, "about": dict(task.about)}
        return any(wanted == {key: row[key] for key in wanted} for row in self.rows)

    def measure(self, task: Task) -> str:
        """Measure a row and save it at once; returns it, or why there is none, in words."""
        what = f"{task.table}, {', '.join(map(cell, task.about.values()))}"
        try:
            cells = dict(task.measure())
        except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
            return f"{what}: {type(error).__name__}, {str(error).partition(chr(10))[0]}"
        about = dict(task.about)
        self.rows.append({**self.by, "table": task.table, "about": about, "cells": cells})
        with whole_file(self.path) as temporary:
            temporary.write_text(json.dumps({"rows": self.rows}, indent=1), "utf-8")
        return f"{what}: {', '.join(f'{title} {cell(it)}' for title, it in cells.items())}"


def write_tables(folder: Path, page: Path) -> None:
    """Write the section of each machine in a folder's rows to a page, in place of an earlier one;
    sections of other machines stay."""
    before, heading, after = page.read_text("utf-8").partition(HEADING)
    about, *sections = after.rstrip().split(SECTION)
    known = dict(section.split("\n\n", 1) for section in sections)
    rows = read(folder)
    for name in dict.fromkeys(row["machine"] for row in rows):
        known[name] = section_of([row for row in rows if row["machine"] == name])
    parts = [about, *(f"{name}\n\n{text}" for name, text in known.items())]
    save_text(page, before + heading + SECTION.join(parts))


def section_of(rows: Iterable[dict[str, Any]]) -> str:
    """The tables of a machine. Of rows measured by several versions the last one counts."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        tables.setdefault(row["table"], {})[json.dumps(row["about"])] = row
        version = row["version"]
    parts, old = [], set[str]()
    for title, found in tables.items():
        lines = []
        for row in found.values():
            cells = row["about"] | row["cells"]
            lines.append([*map(cell, cells.values())])
            if row["version"] != version:
                old.add(row["version"])
                lines[-1][0] += OLD
        texts = sum(isinstance(it, str) for it in row["about"].values())
        parts.append(f"{title}:\n\n{table([*cells], lines, texts)}")
    marked = f"; rows with{OLD} of {', '.join(sorted(old))}" if old else ""
    return "\n\n".join([f"Version {version}{marked}.", *parts])
