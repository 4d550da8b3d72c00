"""Live play over the socket: exact results, limits, and release of resources."""

import base64
import gc
import time
import weakref
from dataclasses import replace

import numpy as np
import pytest

import nppsim
from nppsim.levels.campaign import to_line
from nppsim.replays.replay import Replay
from nppsim.studio import sessions
from nppsim.studio.documents import MAX_RUN_FRAMES
from nppsim.studio.library import Library
from nppsim.studio.sessions import SNAPSHOT_EVERY

from worlds import moving_level, straight

WAIT_S = 20  # for what happens in another thread


def ask(socket, **message):
    socket.send_json(message)
    return socket.receive_json()


def wait_until(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.005)


def random_inputs(seed, frames):
    return np.repeat(np.random.default_rng(seed).integers(0, 8, -(-frames // 5)), 5)[:frames].astype(np.uint8)


def test_socket_recording_plays_back_bit_for_bit(page, tmp_path):
    level, inputs = moving_level(), random_inputs(1, 200)
    with page.socket() as socket:
        frames = [ask(socket, start=level.fingerprint)["frame"]]
        for part in np.split(inputs, [1, 2, 3, 10, 60, 61, 150]):
            frames += ask(socket, step=part.tolist())["frames"]
        stored = ask(socket, store={"label": "mine"})["stored"]
    (tmp_path / "mine.replay").write_bytes(page.get(f"recordings/{stored['number']}/file").content)
    replay = Replay.load(tmp_path / "mine.replay")
    run = nppsim.simulate(replay.level, replay.inputs)
    assert replay.level == level and replay.inputs.tolist() == inputs[: run.frames].tolist()
    assert (run.frames, run.outcome) == (stored["frames"], stored["outcome"]) == (len(frames) - 1, frames[-1]["o"])
    assert [frame["n"][:4] for frame in frames[1:]] == np.hstack([run.position, run.velocity]).tolist()
    looks = {}
    for frame, states, places in zip(frames[1:], run.entity_state, run.entity_position, strict=True):
        looks |= frames[0]["c"] if not looks else {}
        looks |= frame["c"]
        assert [looks[str(i)][0] for i in range(len(states))] == states.tolist()
        assert [looks[str(i)][1:3] for i in range(len(states))] == places.tolist()


def test_rewind_then_play_equals_direct_play(page):
    level, inputs = moving_level().fingerprint, random_inputs(1, 100)
    other = random_inputs(2, 40).tolist()
    run = nppsim.simulate(moving_level(), inputs)
    with page.socket() as socket:
        ask(socket, start=level)
        ask(socket, step=inputs.tolist())
        for frame in (run.frames - 1, SNAPSHOT_EVERY, SNAPSHOT_EVERY - 1, 17, 0):
            there = ask(socket, rewind=frame)["frame"]
            assert there["f"] == frame and there["all"]
            if frame:
                assert there["n"][:2] == run.position[frame - 1].tolist()
            ask(socket, step=inputs[frame:].tolist())
        ask(socket, rewind=30)
        ask(socket, step=other)
        stored = ask(socket, store={"label": ""})["stored"]
    recording = page.studio.recordings.recording(stored["number"])
    assert recording.inputs.tolist() == [*inputs[:30], *other][: stored["frames"]]
    played = nppsim.simulate(moving_level(), recording.inputs)
    assert (played.frames, played.outcome) == (stored["frames"], stored["outcome"])


def test_practice_starts_at_any_frame(page, winning):
    half = winning.frames // 2
    with page.socket() as socket:
        text = base64.b64encode(winning.inputs[:half].tobytes()).decode()
        frame = ask(socket, start=winning.level.fingerprint, inputs=text)["frame"]
        assert frame["f"] == half and frame["all"] and frame["i"] == 2
        frames = ask(socket, step=[2] * 300)["frames"]
        assert frames[-1]["o"] == "won" and len(frames) == winning.frames - half
        assert ask(socket, step=[2])["frames"] == []
        assert ask(socket, rewind=0)["frame"]["f"] == 0
        assert len(ask(socket, step=[0] * 5)["frames"]) == 5


def test_two_sockets_are_independent(page):
    first, second = straight(), moving_level()
    with page.socket() as one, page.socket() as other:
        ask(one, start=first.fingerprint), ask(other, start=second.fingerprint)
        seen = []
        for byte in (2, 2, 3, 0, 4):
            seen.append(ask(one, step=[byte])["frames"][0]["n"][:2])
            ask(other, step=[1])
        assert len(page.studio.sessions) == 2
    assert seen == nppsim.simulate(first, np.array([2, 2, 3, 0, 4])).position.tolist()


def test_closed_socket_frees_simulator(page):
    with page.socket() as socket:
        ask(socket, start=straight().fingerprint)
        ask(socket, step=[2] * 100)
        (session,) = page.studio.sessions
        game, session = weakref.ref(session._game), None
        assert game() is not None
    wait_until(lambda: not page.studio.sessions)
    wait_until(lambda: gc.collect() is not None and game() is None)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("null", "a message has one of"),
        ("[1]", "a message has one of"),
        ("{}", "a message has one of"),
        ('{"step": [1], "rewind": 0}', "a message has one of"),
        ('{"step": [1], "more": 0}', "a message has one of"),
        ('{"step": 1}', "should be a list"),
        ('{"step": [1.5]}', "whole number"),
        ('{"step": [true]}', "whole number"),
        ('{"step": [16]}', "0 to 15"),
        ('{"step": [-1]}', "0 to 15"),
        (f'{{"step": {[0] * 601}}}', "at most 600"),
        ('{"rewind": 99}', "go to frame 99: give one from 0 to 3"),
        ('{"rewind": -1}', "go to frame -1: give one from 0 to 3"),
        ('{"rewind": "x"}', "whole number"),
        ('{"store": {"label": 5}}', "should be a text"),
        (f'{{"store": {{"label": "{"x" * 101}"}}}}', "at most 100"),
        ('{"store": {"label": "a\\u0000b"}}', "unprintable characters"),
        ('{"start": "nothing"}', "no such level"),
        ('{"start": "LEVEL", "inputs": "!"}', "base64"),
        ('{"start": "LEVEL", "inputs": "////"}', "0 to 15"),
        ('{"start": "LEVEL", "inputs": 5}', "base64"),
    ],
)
def test_invalid_messages_leave_game_unchanged(page, message, expected):
    level = straight().fingerprint
    with page.socket() as socket:
        ask(socket, start=level)
        ask(socket, step=[2, 2, 2])
        socket.send_text(message.replace("LEVEL", level))
        assert expected in socket.receive_json()["error"]
        assert ask(socket, step=[2])["frames"][0]["f"] == 4


def test_message_before_start_raises_error(page):
    with page.socket() as socket:
        for message in ({"step": [1]}, {"rewind": 0}, {"store": {"label": ""}}):
            assert "no level has been started" in ask(socket, **message)["error"]


def test_session_memory_is_bounded(page, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_RUN_FRAMES", 100)
    with page.socket() as socket:
        ask(socket, start=straight().fingerprint)
        assert len(ask(socket, step=[0] * 100)["frames"]) == 100
        assert "at most 100 frames" in ask(socket, step=[0])["error"]
        too_long = base64.b64encode(bytes(101)).decode()
        assert "at most 100 frames" in ask(socket, start=straight().fingerprint, inputs=too_long)["error"]
        assert ask(socket, rewind=50)["frame"]["f"] == 50


def test_snapshot_memory_is_bounded_and_rewinds_exact(page, monkeypatch):
    limit = 20 * MAX_RUN_FRAMES  # bytes: enough for a state of this level every hundred frames or so
    monkeypatch.setattr(sessions, "SNAPSHOT_BYTES", limit)
    level, inputs = moving_level(), random_inputs(1, 400)
    with page.socket() as socket:
        ask(socket, start=level.fingerprint)
        ask(socket, step=inputs.tolist())
        (session,) = page.studio.sessions
        size = session._snapshots[0].nbytes
        interval = session._snapshot_interval
        assert interval > SNAPSHOT_EVERY and MAX_RUN_FRAMES / interval * size <= limit
        assert len(session._snapshots) == 1 + 400 // interval
        for frame in (interval + 1, interval, interval - 1, 3):
            there = ask(socket, rewind=frame)["frame"]["n"][:2]
            assert there == nppsim.simulate(level, inputs[:frame]).position[-1].tolist()
            ask(socket, step=inputs[frame:].tolist())


def test_number_of_games_is_bounded(page, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 1)
    with page.socket() as socket:
        ask(socket, start=straight().fingerprint)
        with page.socket() as second:
            assert second.receive()["code"] == 1013
        assert len(ask(socket, step=[0])["frames"]) == 1


def test_edit_replays_rest_and_preview_changes_nothing(page):
    level = moving_level()
    rng = np.random.default_rng(3)
    inputs = rng.integers(0, 8, 400).astype(np.uint8).repeat(3)
    with page.client, page.socket() as socket:

        def ask(**message):
            socket.send_json(message)
            return socket.receive_json()

        ask(start=level.fingerprint)
        for frame in (0, 130, 60, 61):
            inputs[frame] ^= 2
            rest = base64.b64encode(inputs[frame:].tobytes()).decode()
            part = ask(edit={"frame": frame, "inputs": rest})["part"]
            whole = ask(run=base64.b64encode(inputs.tobytes()).decode())["run"]
            tracks = [np.frombuffer(base64.b64decode(one["track"]), "<i2").reshape(-1, 8) for one in (whole, part)]
            assert np.array_equal(tracks[0][frame:], tracks[1])
            later = [change for change in whole["changes"] if change[0] > frame]
            assert later == part["changes"] and whole["outcome"] == part["outcome"]
        preview = ask(preview=50)["preview"]
        pressed = nppsim.simulate(level, np.concatenate([inputs[:50], np.full(60, 2, np.uint8)]))
        assert preview[2]["points"][-1] == pytest.approx(pressed.position[-1], abs=0.06)
        stored = ask(store={"label": "all"})["stored"]
        assert stored["frames"] == part["frames"] and "cannot go to frame 5000" in ask(preview=5000)["error"]
        for request in ({"frame": -1, "agent": "0"}, {"frame": 5000, "agent": "0"}):
            assert "give one from 0 to" in ask(**{"continue": request})["error"]
        for shape in (5, {"frame": 5}, {"frame": 5, "agent": 1}):
            assert "docs/lab/studio.md" in ask(**{"continue": shape})["error"]
        assert "cannot go to frame -1" in ask(edit={"frame": -1, "inputs": ""})["error"]
        assert "no agent" in ask(**{"continue": {"frame": 5, "agent": "77"}})["error"]


def test_episode_played_in_order_with_one_clock(page, tmp_path):
    base = straight()
    lines = [to_line(replace(base, title=f"level {number}")) for number in range(125)]
    tiles = [straight(length=12 + number) for number in range(5)]
    lines[:5] = [to_line(replace(level, title=f"length {level.tiles.sum()}")) for level in tiles]
    (tmp_path / "SI.txt").write_text("\n".join(lines))
    page.studio.library = Library([tmp_path / "SI.txt"])
    found = page.get("episodes/SI-A-00").json()
    assert found["levels"] == [level.fingerprint for level in tiles] and not found["best"]["time"]
    assert "of which 0 are here" in page.get("episodes/SI-Z-00", 404).json()["error"]
    with page.client, page.socket() as socket:

        def ask(**message):
            socket.send_json(message)
            return socket.receive_json()

        frames = 0
        for number, id in enumerate(found["levels"]):
            ask(start=id, episode="SI-A-00")
            frames += len(ask(step=[2] * 300)["frames"])
            answer = ask(score={"name": "Ann"})
            assert ("episode" in answer) == (number == 4)
        assert "has not been won" in ask(start=found["levels"][2], episode="SI-A-00")["error"]
    assert [(run["name"], run["frames"]) for run in answer["episode"]["time"]] == [("Ann", frames)]
    assert page.get("episodes/SI-A-00").json()["best"] == answer["episode"]
