"""Outcomes of episodes: numbers in kernels and episode records, names in infos, files and reports.

Deaths and wins are states of the ninja (docs/physics.md, section 6.1).
"""

TIMEOUT = 0  # the episode reached the time limit of its level (truncation)
WON = 1  # the exit was reached
DIED = 2
NAMES = ("timeout", "won", "died")  # by number
UNFINISHED = "running"  # outcome of a replay whose inputs end without a win or death (``nppsim.simulate``)
