"""Documents of levels, frames and runs against the simulator."""

import base64
import json

import numpy as np
import pytest

import nppsim
from nppsim.bank import LevelBank
from nppsim.levels import kinds
from nppsim.physics import aims
from nppsim.studio import writers
from nppsim.studio.errors import StudioError
from nppsim.studio.game import Game
from nppsim.studio.writers import FrameWriter, level_document, run_document

from worlds import KINDS, mixed_level, straight


def play(seed, kinds_of_level, frames=150):
    """A level, its bank, random inputs in long blocks, and the run of the simulator."""
    level = mixed_level(seed, kinds=kinds_of_level)
    inputs = np.repeat(np.random.default_rng(seed).integers(0, 8, frames // 6), 6).astype(np.uint8)
    bank = LevelBank([level])
    return bank, inputs, nppsim.simulate(bank, inputs)


def frames_of(bank, inputs):
    """Frame documents of a stream, as the page gets them: through JSON."""
    game = Game(bank)
    writer = FrameWriter(game)
    yield json.loads(json.dumps(writer.frame()))
    for k in range(len(inputs)):
        if not game.play(inputs[k : k + 1]):
            return
        yield json.loads(json.dumps(writer.frame(int(inputs[k]))))


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_frame_documents_sum_to_simulated_run(kind):
    bank, inputs, run = play(kind, KINDS[kind])
    first, *frames = frames_of(bank, inputs)
    assert len(frames) == run.frames and first["f"] == 0 and first["all"]
    looks = {int(i): look for i, look in first["c"].items()}
    assert sorted(looks) == list(range(len(run.entities)))
    for k, frame in enumerate(frames):
        assert "all" not in frame and frame["f"] == k + 1 and frame["i"] == inputs[k]
        looks |= {int(i): look for i, look in frame["c"].items()}
        assert frame["n"][:2] == run.position[k].tolist() and frame["n"][2:4] == run.velocity[k].tolist()
        assert frame["n"][4:] == [run.ninja_state[k], *run.floor_normal[k], run.airborne[k]]
        assert frame["g"] == run.gold[k]
        assert [looks[i][0] for i in range(len(looks))] == run.entity_state[k].tolist()
        assert [looks[i][1:3] for i in range(len(looks))] == run.entity_position[k].tolist()
        assert [looks[i][3:] for i in range(len(looks)) if len(looks[i]) > 3] == run.aims[k].tolist()
    assert [frame["o"] for frame in frames] == ["running"] * (run.frames - 1) + [run.outcome]


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_run_document_positions_within_sixteenth_pixel(kind):
    bank, inputs, run = play(kind, KINDS[kind])
    document = json.loads(json.dumps(run_document(bank, inputs, "a name", "#f00")))
    assert (document["frames"], document["outcome"], document["label"]) == (run.frames, run.outcome, "a name")
    assert base64.b64decode(document["inputs"]) == inputs[: run.frames].tobytes()
    track = np.frombuffer(base64.b64decode(document["track"]), "<i2").reshape(-1, 8)
    assert np.abs(track[:, :2] / writers.POSITION_STEPS - run.position).max() <= 1 / 32
    assert np.abs(track[:, 2:4] / writers.SPEED_STEPS - run.velocity).max() <= 1 / 512
    assert (track[:, 4] == run.ninja_state + writers.AIRBORNE * run.airborne).all()
    assert (track[:, 7] == run.gold).all()
    looks = {int(i): look for i, look in document["start"]["c"].items()}
    changes = iter([*document["changes"], [10**9]])
    change = next(changes)
    for k in range(run.frames):
        while change[0] <= k + 1:
            looks[change[1]] = change[2:]
            change = next(changes)
        assert [looks[i][0] for i in range(len(looks))] == run.entity_state[k].tolist()
        places = np.array([looks[i][1:3] for i in range(len(looks))])
        assert np.abs(places - run.entity_position[k]).max() <= 1 / 32


def test_laser_beam_ends_where_simulated():
    bank, inputs, _ = play(7, (kinds.LASER,))
    game = Game(bank)
    writer = FrameWriter(game)
    game.play(inputs)
    frame = writer.frame()
    lasers = [m for m in game.movers if m["type"] == kinds.LASER]
    beams = [look[3:] for look in frame["c"].values() if len(look) == 6]
    assert lasers and beams == [[m["target_x"], m["target_y"], aims.BEAM] for m in lasers]


def test_level_document_entities_in_run_order():
    bank, _, run = play(1, KINDS[0])
    document = json.loads(json.dumps(level_document(bank, category="odd", par=90)))
    level = bank.levels[0]
    assert document["id"] == level.fingerprint and (document["category"], document["par"]) == ("odd", 90)
    assert document["tiles"] == level.tiles.tolist() and document["spawn"] == [*level.spawn]
    assert [entity["type"] for entity in document["entities"]] == run.entities[:, 0].tolist()
    for i, entity in enumerate(document["entities"]):
        assert entity["kind"] == kinds.ENTITY_NAMES[entity["type"]]
        assert ("door" in entity) == (entity["type"] in kinds.DOORS)
        if entity["type"] == kinds.EXIT:
            assert document["entities"][entity["switch"]] | {"exit": i} == document["entities"][entity["switch"]]
    assert document["start"]["all"] and len(document["start"]["c"]) == len(run.entities)


def test_game_continues_from_snapshot():
    bank, inputs, run = play(3, KINDS[1])
    game = Game(bank)
    game.play(inputs[:40])
    state = game.snapshot()
    game.play(inputs[40:])
    end = game.snapshot()
    game.restore(state)
    assert game.frame == 40
    game.play(inputs[40:])
    assert (game.snapshot() == end).all() and game.frame == run.frames


def test_game_stops_at_end():
    game = Game(straight())
    frames = game.play(np.full(600, 2, np.uint8))
    assert game.outcome == "won" and frames == game.frame < 600
    assert game.play(np.full(10, 2, np.uint8)) == 0 and game.frame == frames


def test_run_document_too_large_raises_error(monkeypatch):
    bank, inputs, _ = play(4, KINDS[4])  # drones
    monkeypatch.setattr(writers, "MAX_CHANGES", 10)
    with pytest.raises(StudioError, match="too many entities move"):
        run_document(bank, inputs)


def test_run_document_too_long_raises_error():
    bank = LevelBank([straight()])
    with pytest.raises(StudioError, match="shorten it"):
        run_document(bank, np.zeros(writers.MAX_RUN_FRAMES + 1, np.uint8))
