"""WebAssembly kernels have the same results as native ones, byte by byte.

``NPPSIM_WASM_LEVELS`` is the number of generated levels per category and of official levels per file; ``make test-wasm``
plays 200.
"""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from nppsim import BatchSimulator, Level, LevelBank, simulate
from nppsim.decision import make_states
from nppsim.generate import CATEGORIES, generate
from nppsim.levels.campaign import levels_from_bytes
from nppsim.observe.layout import ALL, VISION_FREE
from nppsim.planner import goal_sequence, plan
from nppsim.replays.replay_set import ReplaySet
from nppsim.simulate import play_on
from nppsim.verify import cases
from nppsim.wasm import build, target
from nppsim.wasm.entries import MODULES
from nppsim.wasm.sources import source_digest

import wasm_calls
from places import EXCERPT, ROOT, SHARED
from wasm_calls import needs_node, recording
from worlds import KINDS, mixed_level

INTERFACE = json.loads((build.FOLDER / build.INTERFACE).read_text())
MOST_BYTES = {"game": 300_000, "agent": 400_000, "planner": 400_000}
LEVELS = int(os.environ.get("NPPSIM_WASM_LEVELS", "5"))
CAMPAIGN = SHARED / "campaign"
needs_linker = pytest.mark.skipif(shutil.which("wasm-ld") is None, reason="needs wasm-ld (Debian, Ubuntu: lld)")


@pytest.mark.parametrize("name", target.PRIVATE_NAMES)
def test_private_name_of_numba_exists(name):
    module, _, path = name.partition(":")
    value = importlib.import_module(module)
    for attribute in path.split("."):
        assert hasattr(value, attribute), f"this Numba has no {name}, which nppsim/wasm/target.py uses"
        value = getattr(value, attribute)


def test_binaries_are_from_these_sources():
    assert INTERFACE["sources"] == source_digest(), "kernels have changed; run: make wasm"
    assert set(INTERFACE["modules"]) == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_binary_is_small(module):
    assert (build.FOLDER / f"{module}.wasm").stat().st_size < MOST_BYTES[module]


@needs_linker
@pytest.mark.skipif("NPPSIM_WASM_BUILD" not in os.environ, reason="takes minutes; run by: make test-wasm")
def test_build_is_reproducible():
    if build.tools(shutil.which("wasm-ld")) != INTERFACE["tools"]:
        pytest.skip("the binaries were built with other versions of the tools")
    subprocess.run([sys.executable, "-m", "nppsim.wasm", "--check"], cwd=ROOT, check=True)


def play_at_random(level, seed, decisions=5):
    """Use every entry of the modules "game" and "agent"."""
    rng = np.random.default_rng(seed)
    inputs = np.repeat(rng.integers(0, 8, 50), 6).astype(np.uint8)
    simulate(level, inputs)
    bank = LevelBank([level])
    _rows, states = make_states(1, bank)
    play_on(states, bank.world, inputs[:60])
    sim = BatchSimulator(bank, 1, observations=(*VISION_FREE, "foresight"), threads=1)
    sim.reset()
    for action in rng.integers(0, 6, decisions):
        sim.step(np.array([action]))


def differences(levels):
    with recording("game") as game, recording("agent") as agent:
        for seed, level in enumerate(levels):
            play_at_random(level, seed)
        assert game.count > len(levels) and agent.count > len(levels)
        return game.differences() + agent.differences()


@needs_node
def test_generated_levels_give_equal_bytes():
    assert differences([generate(category, 5000 + i)[0] for category in CATEGORIES for i in range(LEVELS)]) == []


@needs_node
def test_levels_with_all_entities_give_equal_bytes():
    assert differences([mixed_level(seed, kinds=KINDS[seed % len(KINDS)]) for seed in range(LEVELS)]) == []


@needs_node
@pytest.mark.skipif(not CAMPAIGN.exists(), reason="needs ../shared/campaign, the levels of the game")
def test_official_levels_give_equal_bytes():
    chosen = []
    for file in sorted(CAMPAIGN.glob("S*.txt")):
        levels = list(levels_from_bytes(file.read_bytes(), file.name)[0].values())  # without a damaged line of SL2.txt
        chosen += levels[:: max(len(levels) // LEVELS, 1)]
    assert differences(chosen) == []


@needs_node
@pytest.mark.parametrize("path", [EXCERPT, *sorted((SHARED / "conformance").glob("*.h5"))], ids=lambda path: path.name)
def test_conformance_cases_give_equal_bytes(path):
    with recording("game") as calls:
        for _theme, _case, trace in cases(path):
            simulate(Level.from_bytes(trace["map"].tobytes()), trace["inputs"], completions=False)
        assert calls.differences() == []


@needs_node
def test_demonstrations_give_equal_bytes():
    files = sorted((ROOT / "datasets" / "demonstrations").glob("*.h5"))
    with recording("game") as calls:
        for path in files:
            with ReplaySet(path) as replays:
                for index in range(0, len(replays), max(len(replays) // LEVELS, 1)):
                    replay = replays[index]
                    simulate(replay.level, replay.inputs)
        assert calls.count >= LEVELS * len(files)
        assert calls.differences() == []


@needs_node
def test_images_and_graphs_give_equal_bytes():
    with recording("agent") as calls:
        sim = BatchSimulator([generate("mine_heavy", 1)[0], generate("complex", 2)[0]], 2, observations=ALL, threads=1)
        sim.reset()
        for action in range(6):
            sim.step(np.array([action, 5 - action]))
        assert calls.differences() == []


@needs_node
def test_planner_gives_equal_bytes():
    bank = LevelBank([generate("simple", 3)[0]])
    with recording("planner") as calls:
        assert plan(bank.levels[0], budget=60_000) is not None
        _rows, states = make_states(1, bank)
        points, out = np.array([[100.0, 100.0], [24.0, 500.0]]), np.empty(2)
        sequence = goal_sequence.make_sequence(bank)
        goal_sequence.path_lengths(0, states, bank.world, sequence, points, out)
        assert calls.native_ms.keys() == MODULES["planner"]().keys()
        assert calls.differences() == []


@needs_node
def test_fmod_equals_the_remainder_of_javascript():
    script = f"""
        import {{ readFileSync }} from "node:fs";
        const {{ instance }} = await WebAssembly.instantiate(readFileSync("{build.FOLDER / "game.wasm"}"), {{}});
        const bits = new DataView(new ArrayBuffer(16));
        const special = [0, -0, 1, -1, 5e-324, 1.5e-323, 2.2e-308, 1.7e308, 6.283185307179586, Infinity, -Infinity, NaN];
        let wrong = 0;
        const compare = (x, y) => {{ if (!Object.is(instance.exports.fmod(x, y), x % y)) wrong++; }};
        for (const x of special) for (const y of special) compare(x, y);
        for (let i = 0, word = 1; i < 200000; i++) {{
          for (let at = 0; at < 16; at += 4) {{
            word = (Math.imul(word, 1664525) + 1013904223) >>> 0;
            bits.setUint32(at, word ^ (word >>> 15));
          }}
          compare(bits.getFloat64(0), bits.getFloat64(8));
          compare(bits.getFloat64(0) % 100, 6.283185307179586);
        }}
        console.log(wrong);
    """
    done = subprocess.run(
        [wasm_calls.NODE, "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"


@needs_node
@needs_linker
def test_million_angles_equal_stored_digest(tmp_path):
    """The module is built here, because no shipped entry has only angles as arguments."""
    trigonometry = importlib.import_module("tests.nppsim.physics.test_trigonometry")
    code = (
        "from pathlib import Path; from nppsim.wasm.build import build; from nppsim.wasm.entries import Entry, array; "
        "from tests.nppsim.physics.test_trigonometry import evaluate; "
        "arguments = [array('f8'), array('f8'), array('f8'), array('f8', 2)]; "
        f"list(build(Path({str(tmp_path)!r}), {{'angles': lambda: {{'evaluate': Entry(evaluate, arguments)}}}}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True)
    out = np.empty((3, 1_000_000))
    calls = wasm_calls.Calls("angles", folder=tmp_path)
    names = ("angles", "y", "x", "out")
    calls.make("evaluate", trigonometry.evaluate, names, (*trigonometry.arguments(1_000_000), out))
    assert calls.differences() == []
    assert hashlib.sha256(out.tobytes()).hexdigest() == trigonometry.DIGEST


SCRIPT = """
    import { Kernels, KernelError, loadModule } from "FOLDER/kernels.js";
    const game = new Kernels(await loadModule("game"));
    const mark = game.mark();
    const ninjas = game.array("ninja", [2]);
    Object.assign(game.record(ninjas, 1), { x: 24.5, level: -3, state: 4 });
    const copy = game.copyIn({ part: game.copyOut(ninjas) }).part;
    const { x, level, state } = game.record(copy, 1);
    const messages = [{}, { stage: ninjas }].map((given) => {
      try { return game.call("compile", given); }
      catch (error) { return [error instanceof KernelError, error.message]; }
    });
    game.release(mark);
    console.log(JSON.stringify({ record: [x, level, state], messages, same: game.mark() === mark }));
"""


@needs_node
def test_javascript_interface(tmp_path):
    script = tmp_path / "use.mjs"
    script.write_text(SCRIPT.replace("FOLDER", build.FOLDER.as_posix()))
    done = subprocess.run([wasm_calls.NODE, script], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["record"] == [24.5, -3, 4] and answer["same"]
    assert answer["messages"] == [
        [True, "compile: stage is missing"],
        [True, "compile: stage must be uint8 with 2 dimensions; got ninja with 1"],
    ]


def test_build_without_linker_prints_one_error(tmp_path):
    command = [sys.executable, "-m", "nppsim.wasm"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: wasm-ld was not found; install LLVM's linker (Debian, Ubuntu: apt-get install lld)"
    ]
