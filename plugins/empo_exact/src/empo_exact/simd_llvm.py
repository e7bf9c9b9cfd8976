# mypy: disable-error-code="no-untyped-call"
"""The primitives of ``simd`` as LLVM's vectors: the only module that writes LLVM instructions.

``LanesType`` is numba's type of several neighbouring numbers; its representation is LLVM's vector
type. Each primitive is an ``intrinsic`` of numba: a function from argument types to the type of
the result and to a function that writes the instructions. LLVM maps vectors of any width onto
whatever registers a machine has. Where the machine can, a product that is added to something is
rounded once instead of twice; nothing else differs from the same arithmetic done one by one.

It relies on ``llvmlite.ir`` and, for the address of an array's entry, on ``numba.core.cgutils``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.base import BaseContext as Context
from numba.core.datamodel.manager import DataModelManager
from numba.core.typing.context import BaseContext as TypingContext
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from empo_exact.simd_plain import NEGLIGIBLE, Lanes
from empo_worlds.compilation import inlined

FOUR: Final = 4
EIGHT: Final = 8
SIXTEEN: Final = 16

CONTRACT = ("contract",)
"""Lets LLVM round a product and a sum once, together."""

Builder: TypeAlias = ir.IRBuilder
Value: TypeAlias = ir.Value
Args: TypeAlias = Sequence[Value]
Writer: TypeAlias = Callable[[Context, Builder, Signature, Args], Value]
"""Writes the instructions of one call of a primitive."""
Typed: TypeAlias = tuple[Signature, Writer]


class LanesType(types.Type):
    """Numba's type of ``count`` neighbouring float64 numbers."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Lanes({count})")

    @property
    def vector(self) -> ir.VectorType:
        """The LLVM type."""
        return ir.VectorType(ir.DoubleType(), self.count)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: DataModelManager, kind: LanesType) -> None:
        super().__init__(manager, kind, kind.vector)


def _primitive(define: Callable[..., Typed]) -> Callable[..., Lanes]:
    """A function that kernels can call, given its types and instructions."""
    function: Callable[..., Lanes] = intrinsic(define)
    return function


# Addresses of entries, and vectors from numbers.


def _address(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
    """Pointer to the entry of the array ``args[0]`` at the index ``args[1]``."""
    kind, position = signature.args[:2]
    parts = cgutils.unpack_tuple(builder, args[1], len(position))
    index = [context.cast(builder, i, t, types.intp) for i, t in zip(parts, position, strict=True)]
    array = context.make_array(kind)(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, kind, array, index)


def _alignment(context: Context, array: types.Array) -> int:
    """Alignment of an array's entries, in bytes."""
    bytes_: int = context.get_abi_sizeof(context.get_data_type(array.dtype))
    return bytes_


def _spread(builder: Builder, number: Value, count: int) -> Value:
    """A vector that holds one number ``count`` times."""
    empty = ir.Constant(LanesType(count).vector, ir.Undefined)
    single = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, empty, _integers([0] * count, 32))


def _integers(numbers: Sequence[int], bits: int) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.IntType(bits), len(numbers)), list(numbers))


def _spreader(count: int) -> Callable[[float], Lanes]:
    """The primitive that makes ``count`` lanes of one number."""

    def spread(typing: TypingContext, number: types.Type) -> Typed:
        def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
            return _spread(builder, args[0], count)

        return LanesType(count)(types.float64), write

    return _primitive(spread)


four, eight, sixteen = _spreader(FOUR), _spreader(EIGHT), _spreader(SIXTEEN)


# Arrays.


@_primitive
def entry(typing: TypingContext, array: types.Array, index: types.BaseTuple) -> Typed:
    """One entry of an array."""

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        return builder.load(_address(context, builder, signature, args))

    return array.dtype(array, index), write


@_primitive
def load(
    typing: TypingContext, array: types.Array, index: types.BaseTuple, like: LanesType
) -> Typed:
    """As many neighbouring entries of an array as ``like`` has lanes, integers as floats."""

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        kind = ir.VectorType(context.get_data_type(array.dtype), like.count)
        address = builder.bitcast(_address(context, builder, signature, args), kind.as_pointer())
        loaded = builder.load(address, align=_alignment(context, array))
        is_integer = isinstance(array.dtype, types.Integer)
        return builder.uitofp(loaded, like.vector) if is_integer else loaded

    return like(array, index, like), write


@_primitive
def store(
    typing: TypingContext, array: types.Array, index: types.BaseTuple, lanes: LanesType
) -> Typed:
    """Write lanes to neighbouring entries of an array."""

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        address = _address(context, builder, signature, args)
        address = builder.bitcast(address, lanes.vector.as_pointer())
        builder.store(args[2], address, align=_alignment(context, array))
        return context.get_dummy_value()

    return types.void(array, index, lanes), write


# Arithmetic. Operands are lanes or single numbers, which stand for as many equal ones.


def _elementwise(
    operand_types: Sequence[types.Type], build: Callable[..., Value]
) -> tuple[Signature, Writer]:
    """Type and instructions of an operation on lanes, of which one operand is lanes at least.

    ``build`` gets the builder and one vector per operand.
    """
    kind = next(operand for operand in operand_types if isinstance(operand, LanesType))
    operands = [
        kind if isinstance(operand, LanesType) else types.float64 for operand in operand_types
    ]

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        vectors = [
            arg if isinstance(operand, LanesType) else _spread(builder, arg, kind.count)
            for arg, operand in zip(args, operands, strict=True)
        ]
        return build(builder, *vectors)

    return kind(*operands), write


Binary: TypeAlias = Callable[[Builder, Value, Value], Value]


def _binary(build: Binary) -> Callable[..., Lanes]:
    """A primitive of two operands."""

    def function(typing: TypingContext, a: types.Type, b: types.Type) -> Typed:
        return _elementwise((a, b), build)

    return _primitive(function)


smaller = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered("<", b, a), b, a))
larger = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", b, a), b, a))


@_primitive
def where_less(
    typing: TypingContext, a: types.Type, b: types.Type, yes: types.Type, no: types.Type
) -> Typed:
    """``yes`` in the lanes where ``a < b``, else ``no``."""

    def select(builder: Builder, a: Value, b: Value, yes: Value, no: Value) -> Value:
        return builder.select(builder.fcmp_ordered("<", a, b), yes, no)

    return _elementwise((a, b, yes, no), select)


def _overload(symbols: Sequence[Callable[..., Lanes]], build: Binary) -> None:
    """Let Python's operators work on lanes.

    By ``overload`` each pair of types would be one more function to compile.
    """

    def typed(context: TypingContext) -> Callable[..., Signature | None]:
        def signature(a: types.Type, b: types.Type) -> Signature | None:
            has_lanes = isinstance(a, LanesType) or isinstance(b, LanesType)
            return _elementwise((a, b), build)[0] if has_lanes else None

        return signature

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        return _elementwise(signature.args, build)[1](context, builder, signature, args)

    for symbol in symbols:
        type_callable(symbol)(typed)
        for operand_types in (
            (LanesType, LanesType),
            (LanesType, types.Float),
            (types.Float, LanesType),
        ):
            lower_builtin(symbol, *operand_types)(write)


_overload((operator.add, operator.iadd), lambda build, a, b: build.fadd(a, b, flags=CONTRACT))
_overload((operator.sub, operator.isub), lambda build, a, b: build.fsub(a, b, flags=CONTRACT))
_overload((operator.mul, operator.imul), lambda build, a, b: build.fmul(a, b, flags=CONTRACT))
_overload((operator.truediv,), lambda build, a, b: build.fdiv(a, b))


@_primitive
def lane_sum(typing: TypingContext, lanes: LanesType) -> Typed:
    """The sum of all lanes, halves first."""

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        total, count = args[0], lanes.count
        while count > 1:
            count //= 2
            low, high = _integers(range(count), 32), _integers(range(count, 2 * count), 32)
            total = builder.fadd(
                builder.shuffle_vector(total, total, low),
                builder.shuffle_vector(total, total, high),
            )
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return types.float64(lanes), write


# The exponential function and the logarithm.

LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
ROUND = 6755399441055744.0
"""1.5 * 2^52: adding it rounds to an integer, which then stands in the lowest bits."""


@_primitive
def times_power_of_two(typing: TypingContext, lanes: LanesType, shifted: LanesType) -> Typed:
    """``lanes`` times 2^n, where the low bits of ``shifted`` are the integer n."""

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        count = lanes.count
        bits = builder.bitcast(args[1], ir.VectorType(ir.IntType(64), count))
        bits = builder.shl(
            builder.add(bits, _integers([1023] * count, 64)), _integers([52] * count, 64)
        )
        return builder.fmul(args[0], builder.bitcast(bits, lanes.vector))

    return lanes(lanes, lanes), write


@inlined
def exponential(x: Lanes) -> Lanes:
    """exp(x) for x <= 0, to about one unit in the last place.

    Calls of ``math.exp`` would cost more than all the rest: so x = n ln 2 + r with
    |r| <= ln 2 / 2, a Taylor polynomial of degree 13 for exp(r), and 2^n put together from bits.
    The polynomial is summed in pairs and pairs of pairs, which do not wait for each other.
    """
    bounded = larger(x, NEGLIGIBLE)
    shifted = bounded * LOG2_E + ROUND  # Its low bits are n.
    n = shifted - ROUND
    r = (bounded - n * LN2_HIGH) - n * LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    first = (1.0 / 6.0 * r + 1.0 / 2.0) * r2 + (r + 1.0)
    second = (1.0 / 5040.0 * r + 1.0 / 720.0) * r2 + (1.0 / 120.0 * r + 1.0 / 24.0)
    third = (1.0 / 39916800.0 * r + 1.0 / 3628800.0) * r2 + (1.0 / 362880.0 * r + 1.0 / 40320.0)
    fourth = 1.0 / 6227020800.0 * r + 1.0 / 479001600.0
    y = (fourth * r4 + third) * (r4 * r4) + (second * r4 + first)
    return where_less(NEGLIGIBLE, x, times_power_of_two(y, shifted), 0.0)


ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
"""The bits of the root of 1/2."""


def _shifted_exponent(builder: Builder, lanes: Value, count: int) -> tuple[Value, Value]:
    """The bits of numbers x, and the n for which x / 2^n is between the roots of 1/2 and 2."""
    bits = builder.bitcast(lanes, ir.VectorType(ir.IntType(64), count))
    above = builder.sub(bits, _integers([ROOT_HALF_BITS] * count, 64))
    return bits, builder.ashr(above, _integers([52] * count, 64))


@_primitive
def exponent(typing: TypingContext, lanes: LanesType) -> Typed:
    """The n for which x / 2^n is between the roots of 1/2 and of 2, for positive normal x."""

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        _, n = _shifted_exponent(builder, args[0], lanes.count)
        return builder.sitofp(n, lanes.vector)

    return lanes(lanes), write


@_primitive
def mantissa(typing: TypingContext, lanes: LanesType) -> Typed:
    """X / 2^n for that n."""

    def write(context: Context, builder: Builder, signature: Signature, args: Args) -> Value:
        bits, n = _shifted_exponent(builder, args[0], lanes.count)
        power = builder.shl(n, _integers([52] * lanes.count, 64))
        return builder.bitcast(builder.sub(bits, power), lanes.vector)

    return lanes(lanes), write


@inlined
def logarithm(x: Lanes) -> Lanes:
    """log(x) for x >= 0, to a few units in the last place; x must not be subnormal.

    x = m 2^n with m near 1, and log(m) = 2 artanh(s) with s = (m - 1) / (m + 1), |s| < 0.172, by
    its Taylor series to the power 21.
    """
    n, m = exponent(x), mantissa(x)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    tail = (2.0 / 21.0 * z + 2.0 / 19.0) * z + 2.0 / 17.0
    tail = ((tail * z + 2.0 / 15.0) * z + 2.0 / 13.0) * z + 2.0 / 11.0
    tail = ((tail * z + 2.0 / 9.0) * z + 2.0 / 7.0) * z + 2.0 / 5.0
    result = n * LN2_HIGH + ((n * LN2_LOW + s * z * (tail * z + 2.0 / 3.0)) + 2.0 * s)
    return where_less(x, math.inf, where_less(0.0, x, result, -math.inf), x)
