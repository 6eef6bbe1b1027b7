"""`settings.json`, which tune writes, and pipelines and commands read."""

import json

import pytest

from vendi_guidance import VendiGuidance, load_settings
from vendi_guidance.runs.settings_file import save_settings


@pytest.fixture
def path(tmp_path):
    save_settings(tmp_path / "settings.json", {"diversity": 0.3, "rounds": 5}, {"model": "mine"})
    return tmp_path / "settings.json"


def test_settings_are_arguments_of_a_guided_pipeline_or_of_the_guidance_itself(path):
    assert load_settings(path) == {"diversity": 0.3, "diversity_rounds": 5}
    settings = VendiGuidance(**load_settings(path, prefix="")).settings
    assert (settings.rounds, settings.diversity) == (5, 0.3)
    with pytest.raises(FileNotFoundError, match=r"no\.json"):
        load_settings(path.with_name("no.json"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"speed": 1}}, "'speed', which is not a guidance setting"),
        ({"settings": {"diversity": 2}}, "between 0.*got 2"),
        ({"settings": {"level": 10**400}}, "level must be .*got 1000"),
        ({"settings": {"rounds": "many"}}, "rounds must be .*'many'"),
        ({"settings": [1]}, "not a file of guidance settings"),
        ('{"diversity": 0.3}', "it has format None"),
        ({"format": "recipe"}, "it has format recipe"),
        ({"version": 9}, "version 9"),
        *(
            (content, "")
            for content in ("", "{", "[]", "3", "[" * 100_000, '{"settings": {}}', "\0")
        ),
    ],
)
def test_an_invalid_settings_file_is_named(path, changes, words):
    changed = changes
    if isinstance(changes, dict):
        changed = json.dumps(json.loads(path.read_text()) | changes)
    path.write_text(changed)
    with pytest.raises(ValueError, match=f"(?s)settings.json.*{words}"):
        load_settings(path)
