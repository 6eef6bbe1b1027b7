"""Sessions: their number, their folders and their end."""

import pytest

from vendi_guidance.app import session as room
from vendi_guidance.app.session import MOST_SESSIONS, Sessions


def test_a_session_ends_with_its_folder(tmp_path):
    sessions = Sessions(tmp_path)
    one, other = sessions.of("one"), sessions.of("other")
    assert sessions.of("one") is one and one is not other
    assert one.folder.is_dir() and one.folder != other.folder
    sessions.end("one")
    sessions.end("nobody")
    assert one.stop.is_set() and not one.folder.exists() and other.folder.is_dir()
    assert sessions.of("one") is not one
    sessions.end_all()
    assert list(tmp_path.iterdir()) == []


def test_a_key_names_no_folder(tmp_path):
    assert Sessions(tmp_path / "in").of("../../out").folder.parent == tmp_path / "in"


def test_only_sessions_long_idle_make_room(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(room, "monotonic", lambda: now)
    sessions = Sessions(tmp_path)
    made = [sessions.of(str(number)) for number in range(MOST_SESSIONS)]
    with pytest.raises(ValueError, match="Too many people"):
        sessions.of("one more")
    now = room.IDLE + 1
    assert sessions.of("1") is made[1]
    with made[0].alone():  # it is generating
        sessions.of("one more")
    assert sessions.of("0") is made[0] and sessions.of("1") is made[1]
    assert not made[2].folder.exists()


def test_the_others_are_told_of_a_busy_session(tmp_path):
    sessions = Sessions(tmp_path)
    one, other = sessions.of("one"), sessions.of("other")
    with one.alone():
        assert sessions.is_another_busy(other) and not sessions.is_another_busy(one)
    assert not sessions.is_another_busy(other)


def test_a_session_does_one_thing_at_a_time(tmp_path):
    session = Sessions(tmp_path).of("one")
    with session.alone(), pytest.raises(ValueError, match="wait"), session.alone():
        pass
    with session.alone():
        pass
