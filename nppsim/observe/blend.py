"""Blend two rows of bytes bilinearly, sixteen bytes at a time.

LLVM does not vectorise the plain loop, because the rows might overlap.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from nppsim._numba.decorators import intrinsic

LANES = 16
Row = np.ndarray  # uint8


def blend(above: Row, below: Row, out: Row, w00: int, w01: int, w10: int, w11: int) -> None:
    """out[k] = (w00 above[k] + w01 above[k + 1] + w10 below[k] + w11 below[k + 1]) // 256 for k = 0..15.

    above, below: uint8[17], contiguous.  out: uint8[16], contiguous.  w00 to w11: weights, which add up to 256.
    """
    for k in range(LANES):
        total = w00 * int(above[k]) + w01 * int(above[k + 1]) + w10 * int(below[k]) + w11 * int(below[k + 1])
        out[k] = total >> 8


@intrinsic
def _blend(typing_context, above, below, out, w00, w01, w10, w11):
    def codegen(_context, builder, _signature, arguments):
        i8, i16, i64 = ir.IntType(8), ir.IntType(16), ir.IntType(64)
        narrow, wide = ir.VectorType(i8, LANES), ir.VectorType(i16, LANES)

        def pointer(address, offset):
            return builder.inttoptr(builder.add(address, i64(offset)), narrow.as_pointer())

        total = None
        above, below, out, *weights = arguments
        for (row, offset), weight in zip(((above, 0), (above, 1), (below, 0), (below, 1)), weights, strict=True):
            loaded = builder.zext(builder.load(pointer(row, offset), align=1), wide)
            weight = builder.trunc(weight, i16)
            lanes = builder.insert_element(ir.Constant(wide, ir.Undefined), weight, ir.IntType(32)(0))
            lanes = builder.shuffle_vector(lanes, lanes, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))
            term = builder.mul(loaded, lanes)
            total = term if total is None else builder.add(total, term)  # at most 255 * 256: fits 16 bits
        result = builder.trunc(builder.lshr(total, ir.Constant(wide, [8] * LANES)), narrow)
        builder.store(result, pointer(out, 0), align=1)
        return _context.get_dummy_value()

    integer = types.int64
    return types.void(*[integer] * 7), codegen


@overload(blend)
def _compiled_blend(above, below, out, w00, w01, w10, w11):
    def compiled(above, below, out, w00, w01, w10, w11):
        _blend(above.ctypes.data, below.ctypes.data, out.ctypes.data, w00, w01, w10, w11)

    return compiled
