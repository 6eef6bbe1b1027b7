"""Crash-safe writing of files."""

import errno
import os
import stat

import pytest

from vendi_guidance.storage.files import UNFINISHED, remove_unfinished, whole_file, whole_folder


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_a_files_mode_follows_the_umask(tmp_path, monkeypatch, mask, mode):
    before = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            # not os.umask, which is global: two threads that restore it could leave it at 0
            patch.delattr(os, "umask")
            with whole_file(tmp_path / "file") as temporary:
                temporary.write_text("text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    with pytest.raises(OSError, match=r"No space left on device: .*file'"), whole_file(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with whole_file(path) as first, whole_file(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_filled_as_a_whole_or_not_at_all(tmp_path):
    def fill(text: str, error: BaseException | None = None) -> None:
        with whole_folder(folder) as temporary:
            (temporary / "a").write_text(text)
            if error is not None:
                raise error
            (temporary / "b").write_text(text)

    def found() -> dict[str, str]:
        assert list(folder.parent.iterdir()) == [folder]
        return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}

    folder = tmp_path / "new" / "folder"
    with pytest.raises(KeyboardInterrupt):
        fill("half", KeyboardInterrupt())
    assert not list(folder.parent.iterdir())
    with pytest.raises(OSError, match=r"No space left on device: .*folder'"):
        fill("half", OSError(errno.ENOSPC, "No space left on device"))
    fill("old")
    (folder / "mine").write_text("mine")
    with pytest.raises(KeyboardInterrupt):
        fill("half", KeyboardInterrupt())
    assert found() == {"a": "old", "b": "old", "mine": "mine"}
    fill("new")
    assert found() == {"a": "new", "b": "new", "mine": "mine"}
    (folder / "b").unlink()
    (folder / "b").mkdir()
    with pytest.raises(IsADirectoryError, match="b is a folder"):
        fill("newer")
    assert found() == {"a": "new", "mine": "mine"}


def test_errors_name_what_is_written_and_no_temporary_file(tmp_path):
    file, folder = tmp_path / "no" / "file", tmp_path / "folder"
    with pytest.raises(FileNotFoundError, match=r"no/file'$"), whole_file(file):
        pass
    with pytest.raises(FileNotFoundError, match=r"folder'$"), whole_folder(folder) as temporary:
        (temporary / "no" / "file").write_text("")


def test_files_and_folders_of_killed_processes_are_removed(tmp_path):
    file, folder = (tmp_path / name.join(UNFINISHED) for name in "ab")
    file.write_text("half")
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "mine").write_text("mine")
    remove_unfinished(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]
