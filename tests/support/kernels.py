"""Compile what most tests need, once: two processes of tests that begin together would each compile all of it."""

import numpy as np

from nppsim import BatchSimulator
from nppsim.generate import generate
from nppsim.planner import plan

level = generate("simple", 0)[0]
simulator = BatchSimulator([level], 1)
simulator.reset()
simulator.step(np.zeros(1, int))
plan(level)  # which plays back what it has found
