"""Sessions: their folders, and their end."""

from vendi_guidance.app.session import Sessions


def test_a_session_ends_with_its_folder_and_a_key_names_none(tmp_path):
    sessions = Sessions(tmp_path / "in")
    one, other = sessions.of("one"), sessions.of("../../out")
    assert sessions.of("one") is one and one is not other
    assert one.folder != other.folder
    assert one.folder.is_dir() and one.folder.parent == other.folder.parent == tmp_path / "in"
    sessions.end("one")
    sessions.end("nobody")
    assert one.stop.is_set() and not one.folder.exists() and other.folder.is_dir()
    assert sessions.of("one") is not one
    sessions.end_all()
    assert list((tmp_path / "in").iterdir()) == []
