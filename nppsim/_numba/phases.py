"""Profiling of a simulator step: the phases of a step, and a nanosecond clock for kernels.

A kernel stores the time of its last stamp and calls ``stamp`` at the end of each phase.  ``laps`` is int64[NUM_PHASES], or
empty to measure nothing; if it is None, Numba compiles no measuring code.
"""

import time

from llvmlite import ir
from numba import types
from numba.core import cgutils

from nppsim._numba.decorators import inlined, intrinsic, numba_config
from nppsim.observe.layout import slots

PHASES = (
    "reset",
    "events",
    "actions",
    "movers_move",
    "movers_think",
    "ninja",
    "path",
    "game_state",
    "reachability_features",
    "entity_positions",
    "switch_states",
    "hazards_and_surroundings",
    "foresight",
    "player_frame",
    "global_view",
    "graph_state",
    "rewards",
    "truncation",
)
NUM_PHASES = len(PHASES)
PHASE = slots(PHASES)  # number of each phase by name

_CLOCK_MONOTONIC = 1  # id of this clock on Linux
_NS_PER_S = 1_000_000_000


@intrinsic
def clock_ns(typing_context):
    """int64: monotonic clock in nanoseconds.  A call takes about 20 ns and does not need the interpreter."""

    def codegen(_context, builder, _signature, _arguments):
        i32, i64 = ir.IntType(32), ir.IntType(64)
        timespec = ir.LiteralStructType((i64, i64))
        place = cgutils.alloca_once(builder, timespec)
        signature = ir.FunctionType(i32, (i32, timespec.as_pointer()))
        function = cgutils.get_or_insert_function(builder.module, signature, "clock_gettime")
        builder.call(function, (i32(_CLOCK_MONOTONIC), place))
        seconds = builder.load(cgutils.gep_inbounds(builder, place, 0, 0))
        nanoseconds = builder.load(cgutils.gep_inbounds(builder, place, 0, 1))
        return builder.add(builder.mul(seconds, i64(_NS_PER_S)), nanoseconds)

    return types.int64(), codegen


if numba_config.DISABLE_JIT:  # plain Python cannot call an intrinsic
    clock_ns = time.monotonic_ns


@inlined
def begin(laps):
    """Return the current time, or 0 if nothing is measured."""
    return clock_ns() if len(laps) else 0


@inlined
def stamp(laps, phase, since):
    """Add the time since ``since`` to a phase; return the current time."""
    if len(laps) == 0:
        return since
    now = clock_ns()
    laps[phase] += now - since
    return now
