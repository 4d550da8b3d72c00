"""Levels and games in JavaScript (level.js, game.js) have the same arrays as in Python, byte by byte."""

import base64
import hashlib
import json
import os
import subprocess

import numpy as np
import pytest

from nppsim import Level, LevelBank, simulate
from nppsim.generate import CATEGORIES, generate
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet, LevelSetError
from nppsim.wasm.build import FOLDER

from places import ROOT, SHARED
from wasm_calls import NODE, javascript, needs_node
from worlds import KINDS, mixed_level

MANY = "NPPSIM_WASM_LEVELS" in os.environ  # make test-wasm: all shipped and official levels, and packs of other authors
LEVELS, STEP = (int(os.environ["NPPSIM_WASM_LEVELS"]), 1) if MANY else (5, 20)
SCRIPT = ROOT / "tests" / "support" / "wasm_levels.mjs"


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def text(data):
    return base64.b64encode(bytes(data)).decode()


def inputs_for(seed):
    return np.repeat(np.random.default_rng(seed).integers(0, 8, 50), 6).astype(np.uint8)


def expected(level, inputs):
    bank = LevelBank([level])
    run = simulate(bank, inputs)
    rows = [run.position, run.velocity, run.ninja_state, run.airborne, run.walled, run.floor_normal, run.gold]
    ninja = np.concatenate([row.reshape(run.frames, -1).astype(float) for row in rows], axis=1)
    return {
        "map": digest(np.frombuffer(level.to_bytes(), np.uint8)),
        "stage": digest(bank.stage[0]),
        **{name: digest(array) for name, array in bank.world._asdict().items()},
        **{name: digest(array) for name, array in bank.paths._asdict().items()},
        "frames": run.frames,
        "outcome": run.outcome,
        "ninja": digest(ninja),
        "bits": digest(run.entity_state),
        "places": digest(run.entity_position),
        "aims": digest(run.aims),
    }


def differences(levels, tmp_path):
    """Names of the results that differ, by number of the level."""
    given = [(Level.from_bytes(level.to_bytes()), inputs_for(seed)) for seed, level in enumerate(levels)]
    file = tmp_path / "levels.json"
    file.write_text(json.dumps([{"map": text(level.to_bytes()), "inputs": text(inputs)} for level, inputs in given]))
    done = subprocess.run(javascript(SCRIPT, file), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert len(got) == len(given)
    wanted = [expected(level, inputs) for level, inputs in given]
    return {i: [k for k in a if a[k] != b.get(k)] for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b}


@needs_node
def test_generated_levels_give_equal_bytes(tmp_path):
    levels = [generate(category, 7000 + i)[0] for category in CATEGORIES for i in range(LEVELS)]
    assert differences(levels, tmp_path) == {}


@needs_node
def test_levels_with_all_entities_give_equal_bytes(tmp_path):
    assert (
        differences([mixed_level(seed, kinds=KINDS[seed % len(KINDS)]) for seed in range(2 * LEVELS)], tmp_path) == {}
    )


@needs_node
def test_shipped_levels_give_equal_bytes(tmp_path):
    datasets = [ROOT / "datasets" / name for name in ("dev", "test", "train")]
    shipped = [level for folder in (STARTER_LEVELS, *datasets) for level in LevelSet.open(folder)]
    assert differences(shipped[::STEP], tmp_path) == {}


@needs_node
@pytest.mark.skipif(not (SHARED / "campaign").exists(), reason="needs ../shared/campaign")
def test_campaign_levels_give_equal_bytes(tmp_path):
    levels, lost = [], 0
    for file in sorted((SHARED / "campaign").glob("*.txt" if MANY else "S*.txt")):
        entries = LevelSet.at(file)
        for i in range(0, len(entries), STEP):
            try:
                levels.append(entries[i])
            except LevelSetError:  # one line of the files is cut off
                lost += 1
    assert lost <= 1
    assert differences(levels, tmp_path) == {}


def refused(data, tmp_path):
    """Message of levelFromBytes."""
    (tmp_path / "it.map").write_bytes(data)
    script = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ LevelError, levelFromBytes }} from "{FOLDER.as_posix()}/level.js";
        try {{ levelFromBytes(new Uint8Array(readFileSync("{(tmp_path / "it.map").as_posix()}")), "it.map"); }}
        catch (error) {{ if (error instanceof LevelError) console.log(error.message); else throw error; }}
    """
    done = subprocess.run([NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@needs_node
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:700], "it.map: 700 bytes; an N++ map has at least 1235"),
        (lambda data: b"PK" + data[2:], "it.map: it does not begin with four zero bytes"),
        (lambda data: data[:4] + b"\x01\x09\0\0" + data[8:], "it.map: a map of 2305 bytes is stated"),
        (lambda data: data[:1231] + b"\xff" + data[1232:], "it.map: the spawn is at (1530,"),
        (lambda data: data[:1230] + bytes(5) + data[1235:], "it.map: the first record, the spawn, is empty"),
        (
            lambda data: data[:200] + b"\xff" + data[201:1230] + b"\x02" + data[1231:],
            "it.map: the first record has type 2",
        ),
    ],
)
def test_levelFromBytes_damaged_file_raises_with_reason(change, message, tmp_path):
    data = generate("simple", 1)[0].to_bytes()
    assert refused(change(data), tmp_path).startswith(message)


@needs_node
def test_levelFromBytes_level_file_raises_nothing(tmp_path):
    assert refused(generate("simple", 1)[0].to_bytes(), tmp_path) == ""
