"""How compiled code reads state that it borrows: numba's side of `twin.buffers`.

A group is the address of its block; a column is an array made on the spot of the address and the
shape that stand there, without a counted owner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from numba.core import cgutils, types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    overload,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from twin.buffers import Column, Columns
from twin.compiled import entry

BLOCK = cgutils.intp_t.as_pointer()


class GroupType(types.Type):
    """A group by address; its short name keeps symbols, and what is kept on disk, small."""

    def __init__(self, declaration: type[Columns]) -> None:
        self.declaration = declaration
        super().__init__(declaration.__name__)


@register_model(GroupType)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, BLOCK)


@typeof_impl.register(Columns)
def _type_of(value: Columns, _: Any) -> Any:
    return GroupType(type(value))


@unbox(GroupType)
def _unbox(kind: Any, obj: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(obj, "address")
    pointer = c.builder.inttoptr(c.pyapi.long_as_longlong(address), BLOCK)
    c.pyapi.decref(address)
    return NativeValue(pointer, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


def _type_of_column(c: Column) -> Any:
    if c.group is not None:
        return GroupType(c.group)
    assert c.dtype is not None
    element: Any = from_dtype(c.dtype)
    return types.Array(element, len(c.shape), "C") if c.shape else element


@infer_getattr
class _Attributes(AttributeTemplate):
    key = GroupType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        declared = kind.declaration.declared
        return _type_of_column(declared[name]) if name in declared else None


@lower_getattr_generic(GroupType)
def _get(context: Any, builder: Any, kind: Any, block: Any, name: str) -> Any:
    c = kind.declaration.declared[name]
    own = _type_of_column(c)

    def load(place: int, as_type: Any = None) -> Any:
        pointer = cgutils.gep_inbounds(builder, block, place)
        if as_type is not None:
            pointer = builder.bitcast(pointer, as_type.as_pointer())
        value = builder.load(pointer)
        # A block does not change during a call: what was read from it may stay in a register.
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    if c.group is not None:
        return load(c.place, BLOCK)
    if not c.shape:
        return load(c.place, context.get_value_type(own))
    array = make_array(own)(context, builder)
    item = context.get_abi_sizeof(context.get_data_type(own.dtype))
    shape = [load(c.place + 1 + k) for k in range(own.ndim)]
    strides = [context.get_constant(types.intp, item)]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    data = load(c.place, context.get_data_type(own.dtype).as_pointer())
    populate_array(array, data, shape, strides, item, meminfo=None)
    return array._getvalue()


def prepare(compiled: Any, *kinds: type) -> None:
    """Compile an entry for arguments of these kinds, or load it, without running it."""
    if hasattr(compiled, "compile"):  # else numba is switched off
        compiled.compile(tuple(_NUMBERS[k] if k in _NUMBERS else GroupType(k) for k in kinds))


class Piece:
    """A part of an entry that is compiled by itself, and that compiled code calls by its address.

    So processes that get ready share an entry that would take one of them long. Its function takes
    a group of columns and a time, and returns nothing.
    """

    plain: ClassVar[dict[int, Callable[..., None]]] = {}  # by code, where nothing is compiled

    def __init__(self, function: Callable[[Any, float], None]) -> None:
        self._function = function
        self._code = 0

    def code(self, group: type) -> int:
        """Where its code for such a group begins; compiles it, or loads it, when first asked."""
        if not self._code:
            self._code = address_of(entry(self._function), group, float)
            self.plain[self._code] = self._function
        return self._code

    def prepare(self, group: type) -> None:
        """Compile it, or load it, before it is needed."""
        self.code(group)


def run_piece(code: int, group: Any, time: float) -> None:
    """Run the piece of this code."""
    Piece.plain[code](group, time)


def address_of(compiled: Any, *kinds: type) -> int:
    """Where the code of an entry for arguments of these kinds begins; any number without numba."""
    prepare(compiled, *kinds)
    if not hasattr(compiled, "overloads"):
        return id(compiled)
    (form,) = compiled.overloads.values()
    address: int = form.library.get_pointer_to_function(form.fndesc.llvm_func_name)
    return address


def _by_address(_: Any, code: Any, group: Any, time: Any) -> Any:
    def call(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        convention = context.call_conv
        kind = convention.get_function_type(types.none, sig.args[1:])
        returned, raised = (
            cgutils.alloca_once_value(builder, cgutils.get_null_value(pointer.pointee))
            for pointer in kind.args[:2]
        )
        begin = builder.inttoptr(args[0], kind.as_pointer())
        told = builder.call(begin, [returned, raised, *args[1:]])
        status = convention._get_return_status(builder, told, builder.load(raised))
        with builder.if_then(status.is_error, likely=False):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.none(types.int64, group, types.float64), call


_call: Any = intrinsic(_by_address)
UNCOUNTED: Any = {"_nrt": False}


@overload(run_piece, jit_options=UNCOUNTED)
def _run_piece(code: Any, group: Any, time: Any) -> Any:
    def run(code: Any, group: Any, time: Any) -> Any:
        return _call(code, group, time)

    return run


_NUMBERS = {int: types.int64, float: types.float64}
