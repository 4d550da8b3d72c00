"""Compile the kernels that most tests need, once; parallel test processes would each compile them."""

import numpy as np

from nppsim import BatchSimulator, simulate
from nppsim.generate import generate
from nppsim.planner import plan

level = generate("simple", 0)[0]
simulator = BatchSimulator([level], 1)
simulator.reset()
simulator.step(np.zeros(1, int))
plan(level)
simulate(level, np.zeros(1, np.uint8))
