import hashlib
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from numba import njit

from nppsim.physics import trigonometry

from worlds import callable_kernel

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
SMALLEST_TERM = Decimal(10) ** -45
sin_cos, atan2 = callable_kernel(trigonometry.sin_cos), callable_kernel(trigonometry.atan2)


@njit(error_model="numpy")
def evaluate(angles, y, x, out):
    for i in range(len(angles)):
        out[0, i], out[1, i] = trigonometry.sin_cos(angles[i])
        out[2, i] = trigonometry.atan2(y[i], x[i])


def arguments(count, seed=0):
    """Angles of one turn, of the whole domain and near multiples of pi/2; vectors of very different lengths."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-2 * math.pi, 2 * math.pi, count)
    angles[::4] = rng.uniform(-trigonometry.MAX_ANGLE, trigonometry.MAX_ANGLE, len(angles[::4]))
    angles[1::4] = rng.integers(-1000, 1000, len(angles[1::4])) * (math.pi / 2)
    y, x = np.ldexp(rng.uniform(-1, 1, (2, count)), rng.integers(-17, 17, (2, count)))
    return angles, y, x


def series(x, power):
    """Sum of the Taylor series of sine (power 1) or cosine (power 0)."""
    total = term = x if power else Decimal(1)
    while abs(term) > SMALLEST_TERM:
        term *= -x * x / ((power + 1) * (power + 2))
        power += 2
        total += term
    return total


def exact_sin_cos(angle):
    quarters = int((Decimal(angle) / (PI / 2)).to_integral_value())
    rest = Decimal(angle) - quarters * PI / 2
    s, c = series(rest, 1), series(rest, 0)
    return ((s, c), (c, -s), (-s, -c), (-c, s))[quarters % 4]


def exact_atan2(y, x):
    """One step of Newton's method from the double."""
    near = math.atan2(y, x)
    s, c = exact_sin_cos(near)
    return Decimal(near) + (Decimal(y) * c - Decimal(x) * s) / (Decimal(x) * c + Decimal(y) * s)


def error_ulp(result, exact):
    return float(abs(Decimal(result) - exact) / Decimal(math.ulp(float(exact))))


def test_sin_cos_and_atan2_are_close_to_the_exact_values():
    with localcontext() as context:
        context.prec = 60
        for angle, y, x in zip(*(values.tolist() for values in arguments(1000)), strict=True):
            for result, exact in zip(sin_cos(angle), exact_sin_cos(angle), strict=True):
                assert error_ulp(result, exact) < 1, angle
            assert error_ulp(atan2(y, x), exact_atan2(y, x)) < 2, (y, x)


@pytest.mark.parametrize("y", [0.0, -0.0, 1.0, -1.0, 1e-300, 1e300])
@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, -1.0, 1e-300, -1e300])
def test_atan2_of_zeros_and_extremes_equals_the_c_library(y, x):
    result, expected = atan2(y, x), math.atan2(y, x)
    assert result == pytest.approx(expected, rel=1e-15, abs=0) and math.copysign(1, result) == math.copysign(
        1, expected
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_give_nan(value):
    assert all(map(math.isnan, (*sin_cos(value), atan2(value, 1.0), atan2(1.0, value))))


def test_million_arguments_equal_stored_digest():
    """``make test-generic`` repeats this with code for any x86-64 processor; the WebAssembly build has the same bits."""
    angles, y, x = arguments(1_000_000)
    out = np.empty((3, len(angles)))
    evaluate(angles, y, x, out)
    assert hashlib.sha256(out.tobytes()).hexdigest() == DIGEST


DIGEST = "9ea6c2bfaf1f00c982f3cb9fe57a373703d23daf9a012dd6b1e99ccec0e2e2eb"
