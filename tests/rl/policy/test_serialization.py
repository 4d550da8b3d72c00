"""Packing: what JSON and tensors can hold comes back exactly, and what was never packed is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.policy.serialization import PackingError, pack, unpack

DTYPES = ["?", "i1", "i8", "u2", "u8", "f2", "f4", "f8", ">i4", "U3", "S2", "M8[s]", [("a", "i4", (2,)), ("b", "f8")]]
numbers = st.integers() | st.floats(allow_nan=False) | st.booleans()
tensors = st.sampled_from([torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool]).flatmap(
    lambda dtype: st.lists(st.integers(0, 1), max_size=4).map(lambda values: torch.tensor(values, dtype=dtype))
)
arrays = st.tuples(st.sampled_from(DTYPES), st.sampled_from([(), (0,), (3,), (2, 0, 2), (2, 3)])).map(
    lambda pair: np.ones(pair[1], "i1").astype(pair[0]) if isinstance(pair[0], str) else np.zeros(pair[1], pair[0])
)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
leaves = st.none() | numbers | texts | st.binary(max_size=6) | tensors | arrays
keys = st.sampled_from(["$", "$tensor", "$array", "a.b", "a", ""]) | texts | st.integers(-2, 2**70)
nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys | st.tuples(st.integers(0, 3), texts), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)  # distinguishes -0.0 from 0.0


@settings(max_examples=50, deadline=None)
@given(nested)
def test_data_are_restored_through_json(value):
    plain, found = pack(value, "x")
    assert same(value, unpack(json.loads(json.dumps(plain, allow_nan=False)), found))


def test_numbers_that_json_lacks_are_restored():
    values = [float("nan"), float("inf"), -float("inf"), np.float32(0.1), np.int8(-3), np.bool_(True)]
    plain, _ = pack(values, "x")
    found = unpack(json.loads(json.dumps(plain, allow_nan=False)), {})
    assert repr(found) == "[nan, inf, -inf, 0.10000000149011612, -3, True]"


def test_a_tensor_is_copied_and_one_storage_under_two_names_is_two_tensors():
    tensor = torch.arange(6.0).reshape(2, 3)
    plain, found = pack({"whole": tensor, "part": tensor[:, 1]}, "x")
    tensor.zero_()
    assert torch.equal(unpack(plain, found)["part"], torch.tensor([1.0, 4.0]))


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats()
    | st.sampled_from(["t", "|O", "f8", "V9999999999", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$tensor", "$array", "$tuple", "$dict", "$bytes", "$float", "$new", "a"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(json_like)
def test_invalid_packed_data_are_an_error_or_harmless(plain):
    try:
        unpack(plain, {"t": torch.zeros(3)})
    except PackingError:
        return


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "nothing refers to the tensor t"),
        ([{"$tensor": "t"}, {"$tensor": "t"}], "KeyError"),
        ({"$array": ["t", "|O", []]}, "Python objects|ValueError"),
        ({"$array": ["t", "f8", [1 << 62]]}, "ValueError"),
        ({"$code": "t"}, "unknown kind of packed data"),
    ],
)
def test_each_tensor_is_named_once_and_by_a_known_kind(plain, message):
    with pytest.raises(PackingError, match=message):
        unpack(plain, {"t": torch.zeros(3)})
