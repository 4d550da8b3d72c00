"""Time of kernels in WebAssembly (Node.js), divided by the time of native ones, and a comparison of their results.

python -m benchmarks.wasm [--repeats N]
"""

import argparse

import numpy as np

from nppsim import BatchSimulator, LevelBank, simulate
from nppsim.generate import generate
from nppsim.observe.layout import VISION_FREE
from nppsim.planner import plan
from tests.support.wasm_calls import recording

CATEGORIES = ("simple", "mine_heavy", "complex", "campaign_like")
FRAMES, DECISIONS = 3000, 50  # per level


def play(category: str) -> None:
    """Use the entries of the modules "game" and "agent" on one level."""
    rng, level = np.random.default_rng(0), generate(category, 7)[0]
    simulate(level, np.repeat(rng.integers(0, 8, FRAMES // 10), 10).astype(np.uint8))
    sim = BatchSimulator(LevelBank([level]), 1, observations=(*VISION_FREE, "foresight"), threads=1)
    sim.reset()
    for action in rng.integers(0, 6, DECISIONS):
        sim.step(np.array([action]))


def main() -> None:
    """Print one line per entry."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wasm", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="times that each call is made; the shortest counts")
    repeats = parser.parse_args().repeats
    with recording("game", repeats) as game, recording("agent", repeats) as agent:
        for category in CATEGORIES:
            play(category)
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
