"""Each setting is said once, and everything that offers settings offers these."""

import dataclasses
import inspect
from pathlib import Path

import pytest

from vendi_guidance import Published, Rounds, VendiGuidance
from vendi_guidance.guidance.setting import settings_of
from vendi_guidance.guidance.settings import SETTINGS, adjusted, with_prefix
from vendi_guidance.runs.pipelines import GUIDED

PAGE = Path(__file__).parents[2] / "docs" / "dial.md"


def test_guidance_takes_every_setting():
    taken = inspect.signature(VendiGuidance).parameters
    assert set(SETTINGS) <= set(taken)
    assert not any(it.kind is it.VAR_KEYWORD for it in taken.values())


@pytest.mark.parametrize("guided", GUIDED.values())
def test_a_guided_call_shows_the_stock_parameters_and_ours(guided):
    theirs = inspect.signature(guided.stock.__call__).parameters
    ours = inspect.signature(guided.__call__).parameters
    assert [name for name in ours if not name.startswith("diversity")] == list(theirs)
    assert [ours[name].default for name in theirs] == [it.default for it in theirs.values()]
    of_a_call = ("memory", "preset", "undistilled", "window")
    assert ours.keys() - theirs.keys() == {*map(with_prefix, (*SETTINGS, *of_a_call))}


@pytest.mark.parametrize("kind", [Rounds, Published])
def test_help_explains_every_setting(kind):
    for name, setting in settings_of(kind).items():
        setting = dataclasses.replace(setting, help=SETTINGS[name].help)
        assert setting.help
        text = f"{name} ({setting.kind.__name__}): {setting.help} Default: {setting.shown}. Valid: "
        assert text in " ".join(kind.__doc__.split())
        assert f" {name} (" in VendiGuidance.__doc__
        argument = f" {with_prefix(name)} ("
        assert all(argument in guided.__call__.__doc__ for guided in GUIDED.values())


def test_a_setting_that_does_not_exist_is_named_with_those_that_do():
    known = "the settings are diversity, objective, space"
    with pytest.raises(TypeError, match=f"no setting 'scael': {known}"):
        VendiGuidance(scael=3)


def test_a_guidance_says_its_settings_of_now():
    guidance = VendiGuidance(Rounds(level=0.3))
    guidance.settings = Published(every=7)
    assert "every=7" in repr(guidance) and "SlidingWindow(300)" in repr(guidance)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({}, Rounds()),
        ({"diversity": 0.7}, Rounds(diversity=0.7)),
        ({"settings": Rounds(level=0.3), "cfg": 0.1}, Rounds(level=0.3, cfg=0.1)),
        ({"settings": Published(), "sigma_latent": None}, Published(sigma_latent=None)),
        ({"preset": "published", "every": 5}, Published(every=5)),
        ({"settings": Published(every=5), "scale": 0.1}, Published(every=5, scale=0.1)),
    ],
    ids=str,
)
def test_keyword_arguments_change_the_settings_at_hand(given, settings):
    assert VendiGuidance(**given).settings == settings


@pytest.mark.parametrize(
    ("settings", "preset", "given", "typed", "message"),
    [
        (Rounds(), None, "every", str, 'every is .* of Published, .*: add preset="published"'),
        (Rounds(), None, "scale", with_prefix, '^diversity_scale .* add diversity_preset="publ'),
        (Rounds(), "published", "level", str, 'of Rounds, not of Pub.* leave out preset="publ'),
        (Published(), None, "diversity", str, r"or use Rounds\(diversity=1\)"),
    ],
)
def test_settings_of_the_other_algorithm_name_the_remedy(settings, preset, given, typed, message):
    with pytest.raises(TypeError, match=message):
        adjusted(settings, {given: 1}, preset, typed)


def test_settings_are_given_once_and_as_settings():
    with pytest.raises(ValueError, match=r"preset 'published' has settings of its own, got Rounds"):
        VendiGuidance(Rounds(), preset="published")
    with pytest.raises(TypeError, match=r"must be Rounds\(...\) or Published\(...\), got 'rke'"):
        VendiGuidance("rke")


def test_the_documentation_lists_the_settings_as_they_are():
    lines = ["| setting | `Rounds` | `Published` | |", "|---|---|---|---|"]
    of_kinds = settings_of(Rounds), settings_of(Published)
    for name, setting in SETTINGS.items():
        values = [own[name].shown if name in own else "" for own in of_kinds]
        text = setting.help.partition(". ")[0].removesuffix(".")  # the rest is in docstrings
        text += f"; typical: {setting.typical}" if setting.typical else ""
        lines.append(f"| `{name}` | {' | '.join(values)} | {text} |")
    assert "\n".join(lines) in PAGE.read_text("utf-8")
