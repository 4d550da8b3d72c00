"""Sine, cosine and arc tangent with the same bits on every processor.

The C library chooses variants of these functions by processor, with and without fused multiply-add, which differ in the last
bit for one of 2,000 angles.  These kernels use only operations that IEEE 754 defines (docs/physics.md, section 12).  Errors
are below 1 ulp, those of ``atan2`` below 2.

The algorithms and constants are those of fdlibm (https://www.netlib.org/fdlibm), whose notice reads:
    Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
    Developed at SunSoft, a Sun Microsystems, Inc. business.
    Permission to use, copy, modify, and distribute this software is freely granted, provided that this notice is preserved.
"""

import math

from nppsim._numba.decorators import inlined, kernel

MAX_ANGLE = 1e6  # rad; the reduction below is exact to an ulp of the result up to here
_TWO_OVER_PI = 6.36619772367581382433e-01
# pi/2 in parts of 33 bits, so that multiples up to 2**20 of a part are exact, and the rest.
_HALF_PI_1 = 1.57079632673412561417e00
_HALF_PI_2 = 6.07710050630396597660e-11
_HALF_PI_3 = 2.02226624871116645580e-21
_HALF_PI_REST = 8.47842766036889956997e-32
_PI_LOW = 1.2246467991473531772e-16  # pi minus the nearest double


@kernel
def sin_cos(angle):
    """Return (sine, cosine) of an angle in rad, of magnitude up to MAX_ANGLE; NaN for NaN and infinities."""
    if not abs(angle) <= MAX_ANGLE:
        return math.nan, math.nan
    quarters = int(math.floor(angle * _TWO_OVER_PI + 0.5))  # nearest multiple of pi/2
    high, low = _minus_multiple(angle, quarters)
    s, c = _sin(high, low), _cos(high, low)
    quadrant = quarters & 3
    if quadrant == 0:
        return s, c
    if quadrant == 1:
        return c, -s
    if quadrant == 2:
        return -s, -c
    return -c, s


@inlined
def _minus_multiple(angle, n):
    """Return ``angle - n * pi / 2`` as an unevaluated sum (high, low) of 151 bits of precision."""
    first = angle - n * _HALF_PI_1
    part = n * _HALF_PI_2
    second = first - part
    error = (first - second) - part
    part = n * _HALF_PI_3
    third = second - part
    error += ((second - third) - part) - n * _HALF_PI_REST
    high = third + error
    return high, (third - high) + error


@inlined
def _sin(x, low):
    """Sine of x + low, for a magnitude up to pi/4."""
    z = x * x
    cubed = z * x
    r = 8.33333333332248946124e-03 + z * (
        -1.98412698298579493134e-04
        + z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10))
    )
    return x - ((z * (0.5 * low - cubed * r) - low) - cubed * -1.66666666666666324348e-01)


@inlined
def _cos(x, low):
    """Cosine of x + low, for a magnitude up to pi/4."""
    z = x * x
    r = z * (
        4.16666666666666019037e-02
        + z
        * (
            -1.38888888888741095749e-03
            + z
            * (
                2.48015872894767294178e-05
                + z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))
            )
        )
    )
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + (z * r - x * low))


@kernel
def atan2(y, x):
    """Angle in rad, -pi to pi, of the vector (x, y); zeros and their signs as in IEEE 754, NaN if x or y is not finite."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.nan
    behind = math.copysign(1.0, x) < 0.0
    if y == 0.0:
        return math.copysign(math.pi, y) if behind else y
    if x == 0.0 or abs(y) > abs(x) * 2.0**60:
        return math.copysign(0.5 * math.pi, y)
    angle = _atan(abs(y / x))
    if behind:
        angle = math.pi - (angle - _PI_LOW)
    return math.copysign(angle, y)


@inlined
def _atan(x):
    """Arc tangent of x >= 0: of a point of a table, plus that of a small remainder."""
    if x < 0.4375:
        high, low = 0.0, 0.0
    elif x < 0.6875:
        high, low = 4.63647609000806093515e-01, 2.26987774529616870924e-17  # atan(0.5)
        x = (2.0 * x - 1.0) / (2.0 + x)
    elif x < 1.1875:
        high, low = 7.85398163397448278999e-01, 3.06161699786838301793e-17  # atan(1)
        x = (x - 1.0) / (x + 1.0)
    elif x < 2.4375:
        high, low = 9.82793723247329054082e-01, 1.39033110312309984516e-17  # atan(1.5)
        x = (x - 1.5) / (1.0 + 1.5 * x)
    else:
        high, low = 1.57079632679489655800e00, 6.12323399573676603587e-17  # atan(infinity)
        x = -1.0 / x
    z = x * x
    w = z * z
    odd = z * (
        3.33333333333329318027e-01
        + w
        * (
            1.42857142725034663711e-01
            + w
            * (
                9.09088713343650656196e-02
                + w * (6.66107313738753120669e-02 + w * (4.97687799461593236017e-02 + w * 1.62858201153657823623e-02))
            )
        )
    )
    even = w * (
        -1.99999999998764832476e-01
        + w
        * (
            -1.11111104054623557880e-01
            + w * (-7.69187620504482999495e-02 + w * (-5.83357013379057348645e-02 + w * -3.65315727442169155270e-02))
        )
    )
    return high - ((x * (odd + even) - low) - x)
