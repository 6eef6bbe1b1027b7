import sys

import pytest

from scripts.comfyui import __main__ as script


def test_figures_need_diffusers(tmp_path, monkeypatch, capsys):
    (tmp_path / "main.py").touch()
    monkeypatch.setattr(sys, "argv", ["comfyui", str(tmp_path), "--figures"])
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        script.main()
    assert "needs diffusers: pip install diffusers" in capsys.readouterr().err


def test_a_folder_without_comfyui_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["comfyui", str(tmp_path)])
    with pytest.raises(SystemExit):
        script.main()
    assert "is not a clone of ComfyUI: it has no main.py" in capsys.readouterr().err
