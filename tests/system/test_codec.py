"""What goes to another process arrives as it was, and what nobody can have sent is refused."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from tests.engine.test_step_fields import full_step
from yaie.core.step import Fault, StepInput, StepMasks, StepResult
from yaie.system import codec
from yaie.system.codec import LENGTH_BYTES, Codec

CODEC = Codec(StepInput, StepMasks, StepResult)
RESULT = StepResult(
    step=2**60,
    token_ids=[[1, 2], [], [2**31]],
    corrupted=[1],
    out_of_memory=[0],
    extras={
        "logprobs": {
            "rows": np.array([0, 2], np.int32),
            "logprobs": np.array([-0.1, -np.inf], np.float32),
            "top_ids": np.zeros((2, 0), np.int32),
        },
        "leaving": {"data": np.arange(7, dtype=np.uint8)},
        "proposals": {"seconds": np.array([1e-300])},
        "nothing": {},
    },
    fault=Fault("broken \u00fc \ud800", "sampler", "a.py:1"),
)


def expect_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if is_dataclass(one):
        for item in fields(one):
            expect_equal(getattr(one, item.name), getattr(other, item.name))
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert np.array_equal(one, other)
        assert other.flags.writeable
        assert other.flags.aligned
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for item, its in zip(one, other, strict=True):
            expect_equal(item, its)
    elif isinstance(one, dict):
        expect_equal(list(one.items()), list(other.items()))
    else:
        assert one == other


@pytest.mark.parametrize(
    "message",
    [
        full_step(),
        replace(full_step(), new=None, extras={}),
        StepMasks(3, np.array([1], np.int32), np.full((1, 9), 255, np.uint8)),
        RESULT,
        StepResult(1),
    ],
    ids=["step", "short step", "masks", "result", "empty result"],
)
def test_a_message_arrives_as_it_was(message: Any) -> None:
    data = CODEC.encode(message)
    expect_equal(message, CODEC.decode(data))
    expect_equal(message, CODEC.decode(bytearray(data)))


def test_strided_arrays_and_numbers_of_numpy_arrive_as_what_they_mean() -> None:
    masks = StepMasks(1, np.arange(10, dtype=np.int32)[::3], np.ones((4, 6), np.uint8).T)
    again = CODEC.decode(CODEC.encode(masks))
    assert np.array_equal(again.seats, [0, 3, 6, 9])
    assert again.bits.shape == (6, 4)
    result = StepResult(1, token_ids=[[np.int64(5)]])  # type: ignore[list-item]
    assert CODEC.decode(CODEC.encode(result)) == StepResult(1, token_ids=[[5]])


def framed(text: str, arrays: bytes = b"") -> bytes:
    data = text.encode()
    return len(data).to_bytes(LENGTH_BYTES, "little") + data + arrays


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "cannot have"),
        (framed("[]")[:-1], "cannot have"),
        (framed("[]"), "name of its kind"),
        (framed('["os.system", "ls"]'), "name of its kind"),
        (framed('[["StepMasks"], 1]'), "name of its kind"),
        (framed("[" * 100_000), "nested too deeply"),
        (framed('["StepMasks", 1, [0]]'), "StepMasks must be a list of 3"),
        (framed('["StepMasks", true, [0], [0, 0]]'), r"StepMasks\.step: must be a whole number"),
        (framed('["StepMasks", 1.0, [0], [0, 0]]'), r"StepMasks\.step: must be a whole number"),
        (
            framed('["StepMasks", 1, [5], [0, 0]]'),
            r"StepMasks\.seats: an array of shape \(5,\) is not",
        ),
        (framed('["StepMasks", 1, [-1], [0, 0]]'), "list of its sizes"),
        (framed('["StepMasks", 1, [true], [0, 0]]'), "list of its sizes"),
        (framed('["StepMasks", 1, [99999999999, 0], [0, 0]]'), "list of its sizes"),
        (framed('["StepMasks", 1, [0,0,0,0,0], [0, 0]]'), "list of its sizes"),
        (framed('["StepMasks", 1, "x", [0, 0]]'), "list of its sizes"),
        (framed('["StepMasks", 1, [0], [0, 0]]', bytes(99)), "bytes too many"),
        (framed('["StepMasks", ' + "1" * 5000 + ", [0], [0, 0]]"), "integer string conversion"),
    ],
)
def test_what_nobody_can_have_sent_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CODEC.decode(data)


@given(st.data())
def test_a_message_that_was_changed_is_refused_or_another_message(data: st.DataObject) -> None:
    sent = bytearray(CODEC.encode(RESULT))
    for _ in range(data.draw(st.integers(1, 3))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert type(CODEC.decode(sent)) in (StepInput, StepMasks, StepResult)
    except ValueError:
        pass


def test_what_a_field_does_not_declare_is_not_sent() -> None:
    with pytest.raises(TypeError, match="int32 must not be one of int64"):
        CODEC.encode(StepMasks(1, np.arange(3), np.ones((1, 1), np.uint8)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Fault is no message"):
        CODEC.encode(Fault("x"))
    with pytest.raises(TypeError, match="object cannot be written"):
        CODEC.encode(StepResult(object()))  # type: ignore[arg-type]


def test_an_array_of_no_declared_dtype_says_its_own_and_is_no_object() -> None:
    def said(text: str, arrays: bytes = bytes(8)) -> Any:
        return CODEC.decode(
            framed(f'["StepResult",1,[],[],[],[["a",[["b",{text}]]]],null]', arrays)
        )

    assert said('["int32",[2]]').extras["a"]["b"].tolist() == [0, 0]
    for text in ('["O",[1]]', '["object",[1]]', '["int32"]', "[2]", '[["int32"],[2]]', "null"):
        with pytest.raises(ValueError, match="its dtype and its sizes"):
            said(text)
    for array in (np.array([{}]), np.array(["x"]), np.zeros(1, np.complex64)):
        with pytest.raises(TypeError, match="cannot be written"):
            CODEC.encode(StepResult(1, extras={"a": {"b": array}}))


def test_a_field_of_a_type_that_cannot_be_written_is_refused_when_a_codec_is_made() -> None:
    @dataclass
    class Loose:
        value: Any

    with pytest.raises(TypeError, match="Any cannot be written"):
        Codec(Loose)


def test_arrays_are_told_by_numpys_newer_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since NumPy 2.5 `NDArray` is an alias by itself, with the element's type as its argument."""
    element = TypeVar("element")
    newer: Any = TypeAliasType("NDArray", np.ndarray, type_params=(element,))
    monkeypatch.setattr(codec, "NDArray", newer)
    assert codec._way(newer[np.int32])
