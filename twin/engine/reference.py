"""The world by reference: how compiled code gets the state of a run.

Passed by value, a tuple of a hundred arrays would be copied at every call and make compilation
take minutes. Each class of the world has a reference type of its own with the same fields over
the same arrays.
"""

from __future__ import annotations

from typing import Any

from numba import config, njit, types
from numba.experimental import structref

from twin.engine.world import (
    Costs,
    DecodeState,
    Loop,
    PrefillState,
    Record,
    RequestColumns,
    Settings,
    Streams,
    Traffic,
    TransferState,
    World,
)


class _Reference(structref.StructRefProxy):
    """Python's handle on a reference; only compiled code looks inside."""


@structref.register
class SettingsType(types.StructRef):
    """Type of a `Settings` by reference."""


class SettingsReference(_Reference):
    """A `Settings` by reference."""


@structref.register
class RequestColumnsType(types.StructRef):
    """Type of a `RequestColumns` by reference."""


class RequestColumnsReference(_Reference):
    """A `RequestColumns` by reference."""


@structref.register
class PrefillStateType(types.StructRef):
    """Type of a `PrefillState` by reference."""


class PrefillStateReference(_Reference):
    """A `PrefillState` by reference."""


@structref.register
class TransferStateType(types.StructRef):
    """Type of a `TransferState` by reference."""


class TransferStateReference(_Reference):
    """A `TransferState` by reference."""


@structref.register
class DecodeStateType(types.StructRef):
    """Type of a `DecodeState` by reference."""


class DecodeStateReference(_Reference):
    """A `DecodeState` by reference."""


@structref.register
class CostsType(types.StructRef):
    """Type of a `Costs` by reference."""


class CostsReference(_Reference):
    """A `Costs` by reference."""


@structref.register
class TrafficType(types.StructRef):
    """Type of a `Traffic` by reference."""


class TrafficReference(_Reference):
    """A `Traffic` by reference."""


@structref.register
class StreamsType(types.StructRef):
    """Type of a `Streams` by reference."""


class StreamsReference(_Reference):
    """A `Streams` by reference."""


@structref.register
class LoopType(types.StructRef):
    """Type of a `Loop` by reference."""


class LoopReference(_Reference):
    """A `Loop` by reference."""


@structref.register
class RecordType(types.StructRef):
    """Type of a `Record` by reference."""


class RecordReference(_Reference):
    """A `Record` by reference."""


@structref.register
class WorldType(types.StructRef):
    """Type of a `World` by reference."""


class WorldReference(_Reference):
    """A `World` by reference."""


structref.define_constructor(SettingsReference, SettingsType, list(Settings._fields))
structref.define_boxing(SettingsType, SettingsReference)
structref.define_constructor(
    RequestColumnsReference, RequestColumnsType, list(RequestColumns._fields)
)
structref.define_boxing(RequestColumnsType, RequestColumnsReference)
structref.define_constructor(PrefillStateReference, PrefillStateType, list(PrefillState._fields))
structref.define_boxing(PrefillStateType, PrefillStateReference)
structref.define_constructor(TransferStateReference, TransferStateType, list(TransferState._fields))
structref.define_boxing(TransferStateType, TransferStateReference)
structref.define_constructor(DecodeStateReference, DecodeStateType, list(DecodeState._fields))
structref.define_boxing(DecodeStateType, DecodeStateReference)
structref.define_constructor(CostsReference, CostsType, list(Costs._fields))
structref.define_boxing(CostsType, CostsReference)
structref.define_constructor(TrafficReference, TrafficType, list(Traffic._fields))
structref.define_boxing(TrafficType, TrafficReference)
structref.define_constructor(StreamsReference, StreamsType, list(Streams._fields))
structref.define_boxing(StreamsType, StreamsReference)
structref.define_constructor(LoopReference, LoopType, list(Loop._fields))
structref.define_boxing(LoopType, LoopReference)
structref.define_constructor(RecordReference, RecordType, list(Record._fields))
structref.define_boxing(RecordType, RecordReference)
structref.define_constructor(WorldReference, WorldType, list(World._fields))
structref.define_boxing(WorldType, WorldReference)


@njit(cache=True)
def _refer(world: Any) -> Any:
    return WorldReference(
        SettingsReference(*world.settings),
        RequestColumnsReference(*world.request),
        PrefillStateReference(*world.prefill),
        TransferStateReference(*world.transfer),
        DecodeStateReference(*world.decode),
        world.pool,
        CostsReference(*world.costs),
        TrafficReference(*world.traffic),
        StreamsReference(*world.streams),
        LoopReference(*world.loop),
        RecordReference(*world.record),
    )


def by_reference(world: World) -> Any:
    """The same arrays as a reference, for compiled code; plain Python takes the world itself."""
    return world if getattr(config, "DISABLE_JIT", False) else _refer(world)
