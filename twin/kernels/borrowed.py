"""How compiled code reads state that it borrows: numba's side of `twin.kernels.buffers`. A column
is an array made on the spot of an address and a shape, without a counted owner. The compiler
knows two things that hold of columns alone: an index counts from the front (a negative one is
refused), and numbers of different types do not lie in the same place."""

import functools
import operator
from typing import Any

from numba import extending
from numba.core import cgutils, types
from numba.core.datamodel.models import ArrayModel, PrimitiveModel
from numba.core.typing import templates
from numba.np import arrayobj
from numba.np.numpy_support import from_dtype

from twin.kernels.buffers import Columns

BLOCK = cgutils.intp_t.as_pointer()
SEVERAL: Any = types.BaseTuple  # indices
NUMBERS = {int: types.int64, float: types.float64}


class GroupType(types.Type):
    """A group by address; its short name keeps symbols, and files on disk, small."""

    def __init__(self, declaration: type[Columns]) -> None:
        """declaration: the class of the group."""
        self.declaration = declaration
        super().__init__(declaration.__name__)


@extending.register_model(GroupType)
class _Model(PrimitiveModel):
    """Numba's data model of a group: one pointer to its block."""

    def __init__(self, manager: Any, kind: Any) -> None:
        """manager, kind: numba's manager of data models, and the group's numba type."""
        super().__init__(manager, kind, BLOCK)


@extending.typeof_impl.register(Columns)
def _type_of_group(value: Columns, _: Any) -> Any:
    """Numba's type of a group of columns."""
    return GroupType(type(value))


@extending.unbox(GroupType)
def _unbox(kind: Any, obj: Any, context: Any) -> Any:
    """Numba's unboxing of a group: compiled code gets the address of its block."""
    address = context.pyapi.object_getattr_string(obj, "address")
    pointer = context.builder.inttoptr(context.pyapi.long_as_longlong(address), BLOCK)
    context.pyapi.decref(address)
    is_error = cgutils.is_not_null(context.builder, context.pyapi.err_occurred())
    return extending.NativeValue(pointer, is_error=is_error)


class ColumnType(types.Array):
    """A whole column; what is made of one is a plain array."""

    def __init__(self, element: Any, dimensions: int) -> None:
        """element: numba's type of one number; dimensions: number of axes."""
        super().__init__(element, dimensions, "C", name=f"{element}x{dimensions}")


extending.register_model(ColumnType)(ArrayModel)


@functools.cache
def _type_of_column(declaration: type[Columns], name: str) -> Any:
    """Numba's type of the column `name`: of an array, a number or a nested group."""
    column = declaration.declared[name]
    if column.group is not None:
        return GroupType(column.group)
    assert column.dtype is not None
    element_type: Any = from_dtype(column.dtype)
    return ColumnType(element_type, len(column.shape)) if column.shape else element_type


def _selects_number(kind: Any, index_kind: Any) -> bool:
    """Whether an index of type `index_kind` selects one number of an array of type `kind`."""
    axis_kinds = index_kind.types if isinstance(index_kind, SEVERAL) else (index_kind,)
    is_full_index = isinstance(kind.dtype, types.Number) and len(axis_kinds) == kind.ndim
    return is_full_index and all(isinstance(axis_kind, types.Integer) for axis_kind in axis_kinds)


@templates.infer_global(operator.getitem)
class _Reading(templates.AbstractTemplate):
    """Integers of a column are read as 64 bits wide, so that a kernel is compiled for one type of
    index and not for each width of the columns from which an index may come."""

    def generic(self, args: Any, kws: Any) -> Any:
        """Numba's signature of reading one signed integer as int64; None: numba's usual one."""
        kind, index_kind = args
        is_column = isinstance(kind, ColumnType) and kind.dtype in types.signed_domain
        if not is_column or not _selects_number(kind, index_kind):
            return None
        return templates.signature(types.int64, kind, types.unliteral(index_kind))


def _element_pointer(
    context: Any, builder: Any, kind: Any, array: Any, index_kind: Any, index: Any
) -> Any:
    """LLVM pointer to the number that `index` selects in a column; None where it selects no single
    number. kind, index_kind: numba's types of `array` and `index`, which are LLVM values. Raises
    IndexError for an index that is a negative constant."""
    if not _selects_number(kind, index_kind):
        return None
    axis_kinds, indices = (index_kind,), [index]
    if isinstance(index_kind, SEVERAL):
        axis_kinds = index_kind.types
        indices = cgutils.unpack_tuple(builder, index, len(index_kind))
    if any(getattr(axis_index, "constant", 0) < 0 for axis_index in indices):
        raise IndexError("an index of a column counts from its front")
    array_model = context.data_model_manager[kind]
    shape = cgutils.unpack_tuple(builder, array_model.get(builder, array, "shape"), kind.ndim)
    offset = cgutils.intp_t(0)
    for axis, (axis_kind, axis_index) in enumerate(zip(axis_kinds, indices, strict=True)):
        position = context.cast(builder, axis_index, axis_kind, types.intp)
        if context.enable_boundscheck:
            cgutils.do_boundscheck(context, builder, position, shape[axis], axis)
        offset = builder.add(builder.mul(offset, shape[axis]), position) if axis else position
    return cgutils.gep_inbounds(builder, array_model.get(builder, array, "data"), offset)


def _mark_type(builder: Any, access: Any, element: Any) -> None:
    """Mark `access`, a load or store, with the type `element` of its number (LLVM's TBAA
    metadata)."""
    module = builder.module
    root_node = module.add_metadata(["columns"])
    type_node = module.add_metadata([str(element), root_node])
    no_offset = cgutils.intp_t(0)
    access.set_metadata("tbaa", module.add_metadata([type_node, type_node, no_offset]))


@extending.lower_builtin(operator.getitem, ColumnType, types.Integer)
@extending.lower_builtin(operator.getitem, ColumnType, SEVERAL)
def _compile_read(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Emit the code of `column[index]` in compiled functions; returns the LLVM value."""
    kind, index_kind = sig.args
    pointer = _element_pointer(context, builder, kind, args[0], index_kind, args[1])
    if pointer is None:
        is_several = isinstance(index_kind, SEVERAL)
        read_array = arrayobj.getitem_array_tuple if is_several else arrayobj.getitem_arraynd_intp
        return read_array(context, builder, sig, args)
    element = builder.load(pointer)
    _mark_type(builder, element, kind.dtype)
    return context.cast(builder, element, kind.dtype, sig.return_type)


@extending.lower_builtin(operator.setitem, ColumnType, types.Any, types.Any)
def _compile_write(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Emit the code of `column[index] = value` in compiled functions."""
    kind, index_kind, value_kind = sig.args
    pointer = _element_pointer(context, builder, kind, args[0], index_kind, args[1])
    if pointer is None:
        return arrayobj.setitem_array(context, builder, sig, args)
    element = context.cast(builder, args[2], value_kind, kind.dtype)
    _mark_type(builder, builder.store(element, pointer), kind.dtype)
    return context.get_dummy_value()


@extending.infer_getattr
class _Attributes(templates.AttributeTemplate):
    key = GroupType

    def generic_resolve(self, kind: Any, name: str) -> Any:  # type: ignore[override]
        """Numba's type of a group's column by name; None: the group has no such column."""
        declaration = kind.declaration
        return _type_of_column(declaration, name) if name in declaration.declared else None


@extending.lower_getattr_generic(GroupType)
def _compile_attribute(context: Any, builder: Any, kind: Any, block: Any, name: str) -> Any:
    """Emit the reading of column `name` of a group of type `kind`: a number, a nested group, or an
    array. block: LLVM pointer to the group's block."""
    column = kind.declaration.declared[name]
    column_type = _type_of_column(kind.declaration, name)

    def load_word(place: int, as_type: Any = None) -> Any:
        """Emit the reading of the block's word `place`, as an LLVM value of type `as_type`."""
        pointer = cgutils.gep_inbounds(builder, block, place)
        if as_type is not None:
            pointer = builder.bitcast(pointer, as_type.as_pointer())
        word = builder.load(pointer)
        # A block does not change during a call: what was read from it may stay in a register.
        word.set_metadata("invariant.load", builder.module.add_metadata([]))
        return word

    if column.group is not None:
        return load_word(column.place, BLOCK)
    if not column.shape:
        return load_word(column.place, context.get_value_type(column_type))
    assert column.dtype is not None
    array_model = context.data_model_manager[column_type]
    shape = [load_word(column.place + 1 + k) for k in range(column_type.ndim)]
    strides_bytes = [item_bytes := cgutils.intp_t(column.dtype.itemsize)]
    for length in reversed(shape):  # bytes from one index of an axis to the next, last axis first
        strides_bytes.append(builder.mul(strides_bytes[-1], length))
    array_fields = {
        "nitems": functools.reduce(builder.mul, shape),
        "itemsize": item_bytes,
        "data": load_word(column.place, context.get_data_type(column_type.dtype).as_pointer()),
        "shape": cgutils.pack_array(builder, shape),
        "strides": cgutils.pack_array(builder, strides_bytes[-2::-1]),
    }
    array = cgutils.get_null_value(array_model.get_value_type())  # without an owner
    for field, value in array_fields.items():
        array = array_model.set(builder, array, value, field)
    return array


def compile_entry(compiled_entry: Any, *kinds: type) -> None:
    """Compile an entry for arguments of these types (int, float, groups of columns), or load it
    from disk, without running it."""
    if hasattr(compiled_entry, "compile"):  # else numba is switched off
        argument_types = (NUMBERS[kind] if kind in NUMBERS else GroupType(kind) for kind in kinds)
        compiled_entry.compile(tuple(argument_types))
