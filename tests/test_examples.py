"""The examples in the docstrings hold, and every public name has one."""

import ast
import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
import vendi_guidance.pipelines

import vendi_guidance
from tests.helpers.public import PACKAGES, PUBLIC

RESULTS = {"Batch", "Comparison", "Convergence", "ManifoldScores", "Mode"}
"""Of functions, whose examples show them."""


def modules_with_examples() -> list[str]:
    """Found in the source, since importing every module takes long."""
    modules = {
        found.name
        for package in (vendi_guidance, vendi_guidance.pipelines)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if ">>> " in Path(found.module_finder.find_spec(found.name).origin).read_text("utf-8")
    }
    return sorted(modules)


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_hold(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        vendi_guidance.nonsense  # noqa: B018


def test_the_top_level_is_short_and_no_name_is_in_two_places():
    assert len(vendi_guidance.__all__) <= 25
    assert len(PUBLIC) == sum(len(package.__all__) for package in PACKAGES)


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - RESULTS))
def test_every_public_name_has_an_example(name):
    docstring = inspect.getdoc(PUBLIC[name]) or ""
    assert "\nExample:\n    >>> " in docstring
    assert (name in NEED_WEIGHTS) != runs_more_than_assignments(docstring)


NEED_WEIGHTS = ("VendiGuidedFluxPipeline", "dinov2_encoder", "open_clip_encoder")
"""Of which the repository has none that are small: their examples cannot run in a test."""


def runs_more_than_assignments(docstring):
    examples = doctest.DocTestParser().get_examples(docstring)
    run = [one.source for one in examples if not one.options.get(doctest.SKIP)]
    lines = [line for source in run for line in ast.parse(source).body]
    return any(not isinstance(line, ast.Import | ast.ImportFrom | ast.Assign) for line in lines)
