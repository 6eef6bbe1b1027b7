import sys

import pytest

from scripts.comfyui import __main__ as script


def test_what_the_script_needs_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    for options, message in (
        ([], "is not a clone of ComfyUI: it has no main.py"),
        (["--figures"], "needs diffusers: pip install diffusers"),
    ):
        monkeypatch.setattr(sys, "argv", ["comfyui", str(tmp_path), *options])
        with pytest.raises(SystemExit):
            script.main()
        assert message in capsys.readouterr().err
        (tmp_path / "main.py").touch()
