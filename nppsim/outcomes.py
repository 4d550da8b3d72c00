"""How an episode can end: its number in kernels and episode records, its name in infos, files and reports."""

TIMEOUT = 0  # the level's time limit is over: a truncation, not an end of the game
WON = 1  # the exit was reached
DIED = 2
NAMES = ("timeout", "won", "died")  # by number
UNFINISHED = (
    "running"  # of a run whose inputs were over before the level was (``nppsim.simulate``); episodes never end so
)
