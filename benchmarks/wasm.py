"""Time of kernels in WebAssembly (Node.js), divided by the time of native ones, and a comparison of their results.

python -m benchmarks.wasm [--repeats N]
"""

import argparse
from pathlib import Path

import numpy as np

from nppsim import BatchSimulator, LevelBank, simulate
from nppsim.generate import generate
from nppsim.observe.layout import VISION_FREE
from nppsim.planner import plan
from nppsim.replays.replay_set import ReplaySet
from tests.support.wasm_calls import recording

CATEGORIES = ("simple", "mine_heavy", "complex", "campaign_like")
RUNS, DECISIONS = 10, 50  # demonstrations per file, decisions per level
DEMONSTRATIONS = Path(__file__).parents[1] / "datasets" / "demonstrations"


def play() -> None:
    """Use the entries of the modules "game" and "agent"."""
    for path in sorted(DEMONSTRATIONS.glob("*.h5")):
        with ReplaySet(path) as replays:
            for index in range(0, len(replays), max(len(replays) // RUNS, 1)):
                simulate(replays[index].level, replays[index].inputs)
    for category in CATEGORIES:
        bank, rng = LevelBank([generate(category, 7)[0]]), np.random.default_rng(0)
        sim = BatchSimulator(bank, 1, observations=(*VISION_FREE, "foresight"), threads=1)
        sim.reset()
        for action in rng.integers(0, 6, DECISIONS):
            sim.step(np.array([action]))


def main() -> None:
    """Print one line per entry."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wasm", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="times that each call is made; the shortest counts")
    repeats = parser.parse_args().repeats
    with recording("game", repeats) as game, recording("agent", repeats) as agent:
        play()
    with recording("planner", repeats) as planner:
        plan(generate("mine_heavy", 3)[0], budget=60_000)
    for calls in (game, agent, planner):
        differences = calls.differences()
        for name, native in calls.native_ms.items():
            wasm = calls.wasm_ms[name]
            print(
                f"{calls.module}.{name}: native {native:.2f} ms, WebAssembly {wasm:.2f} ms, ratio {wasm / native:.2f}"
            )
        print(f"{calls.module}: {calls.count} calls, {len(differences)} differences")


if __name__ == "__main__":
    main()
