"""Several neighbouring numbers at a time, for compiled kernels.

Compilers turn only the simplest loops into vector instructions, and the sweep's are none of
those: they combine short rows that are found through indices. So the kernels say what is done
to several neighbours at once. ``load(array, (row, column), zero)`` reads as many numbers that
lie next to each other as ``zero`` has lanes; ``four(0.0)``, ``eight(0.0)`` and
``sixteen(0.0)`` are such zeros, so that one function serves all widths. ``store`` writes lanes
back; in between they are added, subtracted, multiplied and divided like numbers, and with
numbers. LLVM maps this onto whatever vectors a machine has. Where the machine can, a product
that is added to something is rounded once instead of twice; nothing else differs from the same
arithmetic done one by one.

Indices are not checked, and arrays must be C-contiguous.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.extending import intrinsic, models, overload, register_model

Lanes: TypeAlias = Any
"""Several numbers, in the annotations of kernels."""

cgutils: Any = untyped_cgutils

CONTRACT = ("contract",)
"""Lets LLVM round a product and a sum once, together."""


class LanesType(types.Type):
    """The compiled kernels' type of ``count`` neighbouring float64 numbers."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Lanes({count})")

    @property
    def vector(self) -> ir.VectorType:
        """The LLVM type."""
        return ir.VectorType(ir.DoubleType(), self.count)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: LanesType) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]


def _builtin(define: Callable[..., Any]) -> Callable[..., Any]:
    """A function that kernels can call, given what tells its type and generates its code."""
    function: Callable[..., Any] = intrinsic(define)
    return function


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Pointer to the entry of the array ``args[0]`` at the index ``args[1]``."""
    kind, position = signature.args[:2]
    index = cgutils.unpack_tuple(builder, args[1], len(position))
    index = [context.cast(builder, i, t, types.intp) for i, t in zip(index, position, strict=True)]
    array = context.make_array(kind)(context, builder, args[0])
    return cgutils.get_item_pointer(context, builder, kind, array, index)


@_builtin
def entry(typing: Any, array: Any, index: Any) -> Any:
    """One entry of an array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_place(context, builder, signature, args))

    return array.dtype(array, index), generate


@_builtin
def load(typing: Any, array: Any, index: Any, like: Any) -> Any:
    """As many neighbouring entries of an array as ``like`` has lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        kind = ir.VectorType(context.get_data_type(array.dtype), like.count)
        found = builder.load(
            builder.bitcast(place, kind.as_pointer()), align=array.dtype.bitwidth // 8
        )
        if isinstance(array.dtype, types.Integer):
            found = builder.uitofp(found, like.vector)
        return found

    return like(array, index, like), generate


def _spreader(count: int) -> Any:
    @_builtin
    def spread(typing: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _spread(builder, args[0], LanesType(count))

        return LanesType(count)(types.float64), generate

    return spread


def _spread(builder: Any, number: Any, kind: LanesType) -> Any:
    empty = ir.Constant(kind.vector, ir.Undefined)
    one = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(one, empty, order)


four, eight, sixteen = _spreader(4), _spreader(8), _spreader(16)


@_builtin
def store(typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Write lanes to neighbouring entries of an array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        place = builder.bitcast(place, lanes.vector.as_pointer())
        builder.store(args[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, index, lanes), generate


def _elementwise(builder: Any, kind: LanesType, given: Any, args: Any) -> list[Any]:
    """The operands as lanes: single numbers stand for as many equal ones."""
    return [
        arg if isinstance(operand, LanesType) else _spread(builder, arg, kind)
        for arg, operand in zip(args, given, strict=True)
    ]


def _binary(build: Callable[[Any, Any, Any], Any]) -> Any:
    """A function of two operands, of which one may be a single number."""

    @_builtin
    def function(typing: Any, a: Any, b: Any) -> Any:
        kind = a if isinstance(a, LanesType) else b
        operands = [given if isinstance(given, LanesType) else types.float64 for given in (a, b)]

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return build(builder, *_elementwise(builder, kind, operands, args))

        return kind(*operands), generate

    return function


smaller = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered("<", b, a), b, a))
larger = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", b, a), b, a))


def _teach(symbols: tuple[Any, ...], build: Callable[[Any, Any, Any], Any]) -> None:
    """Let Python's operators work on lanes."""
    function = _binary(build)

    def operate(a: Any, b: Any) -> Any:
        def apply(a: Any, b: Any) -> Any:
            return function(a, b)

        return apply if isinstance(a, LanesType) or isinstance(b, LanesType) else None

    for symbol in symbols:
        overload(symbol)(operate)


_teach((operator.add, operator.iadd), lambda builder, a, b: builder.fadd(a, b, flags=CONTRACT))
_teach((operator.sub, operator.isub), lambda builder, a, b: builder.fsub(a, b, flags=CONTRACT))
_teach((operator.mul, operator.imul), lambda builder, a, b: builder.fmul(a, b, flags=CONTRACT))
_teach((operator.truediv,), lambda builder, a, b: builder.fdiv(a, b))


@_builtin
def where_less(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """``yes`` in the lanes where ``a < b``, else ``no``; single numbers stand for all lanes."""
    given = (a, b, yes, no)
    kind = next(operand for operand in given if isinstance(operand, LanesType))
    operands = [kind if isinstance(operand, LanesType) else types.float64 for operand in given]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b, yes, no = _elementwise(builder, kind, operands, args)
        return builder.select(builder.fcmp_ordered("<", a, b), yes, no)

    return kind(*operands), generate


@_builtin
def lane_sum(typing: Any, lanes: Any) -> Any:
    """The sum of all lanes, halves first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found, count = args[0], lanes.count
        while count > 1:
            count //= 2
            low, high = (
                ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(k, k + count)))
                for k in (0, count)
            )
            found = builder.fadd(
                builder.shuffle_vector(found, found, low),
                builder.shuffle_vector(found, found, high),
            )
        return builder.extract_element(found, ir.Constant(ir.IntType(32), 0))

    return types.float64(lanes), generate


@_builtin
def times_power_of_two(typing: Any, lanes: Any, shifted: Any) -> Any:
    """``lanes`` times 2^n, where the low bits of ``shifted`` are the integer n."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.VectorType(ir.IntType(64), lanes.count)
        bits = builder.bitcast(args[1], integer)
        bits = builder.add(bits, ir.Constant(integer, [1023] * lanes.count))
        bits = builder.shl(bits, ir.Constant(integer, [52] * lanes.count))
        return builder.fmul(args[0], builder.bitcast(bits, lanes.vector))

    return lanes(lanes, lanes), generate
