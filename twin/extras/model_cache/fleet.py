"""Several models on a fleet of NPU slots, by events. A slot holds one model, serves in order at the
formula's rate and is given up when idle; a model takes a free, an idle or a draining slot. Weights
come from DRAM (an LRU of whole models), else from a shared bucket or the memory pool."""

import heapq
import math
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twin.engine.lifecycle.agenda import Agenda

Place = Literal["object storage", "local DRAM", "memory pool"]

Then = Callable[[float], None]


class Bucket:
    """Object storage whose rate is shared evenly by all instances that load."""

    def __init__(self, agenda: Agenda, bytes_per_s: float) -> None:
        self._agenda, self.bytes_per_s = agenda, bytes_per_s
        self._left: dict[int, float] = {}
        self._then: dict[int, Then] = {}
        self._since_s = 0.0
        self._turn = 0

    def fetch(self, k: int, size: float, t_s: float, then: Then) -> None:
        """Send `size` bytes to instance k and call `then` when they have arrived."""
        self._move(t_s)
        self._left[k], self._then[k] = size, then
        self._plan()

    def stop(self, k: int, t_s: float) -> None:
        """Cancel the transfer to instance k."""
        self._move(t_s)
        self._left.pop(k, None)
        self._then.pop(k, None)
        self._plan()

    def _move(self, t_s: float) -> None:
        """Advance all transfers to t_s at equal shares of the rate."""
        share = self.bytes_per_s / max(len(self._left), 1) * (t_s - self._since_s)
        self._left = {k: bytes_left - share for k, bytes_left in self._left.items()}
        self._since_s = t_s

    def _plan(self) -> None:
        """Plan the end of the next transfer."""
        self._turn += 1
        turn = self._turn
        if not self._left:
            return
        soonest = min(self._left.values()) * len(self._left) / self.bytes_per_s
        end_s = self._since_s + soonest

        def arrived(t_s: float) -> None:
            if turn != self._turn:
                return
            self._move(end_s)
            complete = [
                k for k, bytes_left in self._left.items() if bytes_left <= self.bytes_per_s * 1e-6
            ]
            for k in complete:
                del self._left[k]
            self._plan()
            for k in complete:
                self._then.pop(k)(t_s)

        self._agenda.at(end_s, arrived)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model's rate and times on a slot."""

    name: str
    size_bytes: float  # the whole model, once
    load_s: float  # from DRAM until every die of a slot has its weights
    requests_per_s: float  # that a slot begins at most
    ttft_s: float  # of a request that does not wait
    request_s: float  # from its beginning to its last token


@dataclass(frozen=True, slots=True)
class Fleet:
    """Slots, models, storage of weights, and start times of a fleet."""

    models: tuple[ServedModel, ...]
    slots: int
    place: Place
    dram_bytes: float  # for weights: of each slot's nodes, or of the whole memory pool
    bucket_bytes_per_s: float
    idle_s: float  # after which a model without requests gives its NPUs back
    process_s: float  # processes and graphs on NPUs that were free
    regroup_s: float  # groups and graphs on NPUs that another model had


@dataclass(slots=True)
class Start:
    """One start of a model on a slot, with stamps in order."""

    slot: int
    model: int
    switched: bool  # NPUs of another model; else free ones
    begun_s: float  # the slot is empty
    ready_s: float = math.inf  # processes run
    fetched_s: float = math.inf  # DRAM has the weights
    loaded_s: float = math.inf  # HBM has them
    up_s: float = math.inf
    hit: bool = False  # DRAM had them before

    @property
    def weights_s(self) -> float:
        """Seconds to load its weights."""
        return self.loaded_s - self.ready_s


@dataclass(frozen=True, slots=True)
class Served:
    """Results of a simulation; arrays by request."""

    model: NDArray[np.int64]
    arrived_s: NDArray[np.float64]
    begun_s: NDArray[np.float64]
    starts: list[Start]
    held_s: float  # of all slots, from a start until they are given up
    busy_s: float  # of that, with a request in hand
    dram_bytes: float  # most that was stored at any time, all DRAM together
    fetched_bytes: float  # from object storage

    @property
    def wait_s(self) -> NDArray[np.float64]:
        """Seconds from arrival until a slot begins the request."""
        return self.begun_s - self.arrived_s

    @property
    def starting_s(self) -> float:
        """Seconds of all slots spent in starts."""
        return sum(start.up_s - start.begun_s for start in self.starts)


class Dram:
    """Whole models in DRAM, least recently used first, within a number of bytes."""

    def __init__(self, capacity_bytes: float) -> None:
        self._capacity = capacity_bytes
        self.held: OrderedDict[int, float] = OrderedDict()
        self.bytes = 0.0

    def read(self, model: int) -> bool:
        """Whether the model is in DRAM; it becomes the most recently used."""
        if model in self.held:
            self.held.move_to_end(model)
        return model in self.held

    def keep(self, model: int, size_bytes: float) -> None:
        """Store a model, and evict others if necessary; a model larger than DRAM is not stored."""
        if self.read(model) or size_bytes > self._capacity:
            return
        while self.held and self.bytes + size_bytes > self._capacity:
            self.bytes -= self.held.popitem(last=False)[1]
        self.held[model] = size_bytes
        self.bytes += size_bytes


class Clock(Agenda):
    """Actions at their exact times, without steps."""

    def __init__(self) -> None:
        super().__init__(step_s=0.0)

    def until(self, end_s: float) -> None:
        """Run all actions due by `end_s`, including those that they enter."""
        while self._entries and self._entries[0][0] <= end_s:
            due_s, _, action = heapq.heappop(self._entries)
            action(due_s)


@dataclass(slots=True)
class Slot:
    """NPUs for one deployment, with one model at a time."""

    dram: Dram
    state: Literal["free", "starting", "serving", "leaving"] = "free"
    model: int = -1
    since_s: float = 0.0  # it holds its NPUs
    up_s: float = 0.0  # its model serves
    done_s: float = 0.0  # when its last request ends
    taking: bool = False  # until it may begin the next request
    watched: bool = False  # somebody will look whether it is idle
    heir: int | None = None  # the model that it drains for
    last: int = -1  # the request after which it drains


@dataclass(slots=True)
class Demand:
    """Requests of one model, and its slots."""

    waiting: deque[int] = field(default_factory=deque)
    serving: list[int] = field(default_factory=list)
    coming: int = 0  # slots that start or drain for it


class FleetRun:
    """Simulation of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.clock = Clock()
        self._bucket = Bucket(self.clock, fleet.bucket_bytes_per_s)
        pooled = Dram(fleet.dram_bytes)
        pool = fleet.place == "memory pool"
        own_bytes = fleet.dram_bytes if fleet.place == "local DRAM" else 0.0
        self.slots = [Slot(pooled if pool else Dram(own_bytes)) for _ in range(fleet.slots)]
        self._stores = [pooled] if pool else [slot.dram for slot in self.slots]
        self._demands = [Demand() for _ in fleet.models]
        self._on_the_way: dict[int, list[Callable[[float], None]]] = {}
        self._without: deque[int] = deque()  # models for which no slot could be claimed
        self._arrived: list[float] = []
        self._begun: list[float] = []
        self._model: list[int] = []
        self.starts: list[Start] = []
        self._held_s = self._busy_s = self._most_bytes = self._fetched_bytes = 0.0

    def serve(self, model: Sequence[int], arrived_s: Sequence[float]) -> Served:
        """Simulate requests, given in order of time."""
        for model_number, t_s in zip(model, arrived_s, strict=True):
            self.clock.until(t_s)
            self._arrive(model_number, t_s)
        self.clock.until(math.inf)
        end_s = max([*self._arrived[-1:], *(slot.done_s for slot in self.slots)])
        held_s = self._held_s + sum(
            end_s - slot.since_s for slot in self.slots if slot.state != "free"
        )
        return Served(
            np.array(self._model, np.int64), np.array(self._arrived), np.array(self._begun),
            self.starts, held_s, self._busy_s, self._most_bytes, self._fetched_bytes,
        )  # fmt: skip

    def load_everywhere(self, model: int, t_s: float) -> float:
        """Start a model on every slot at once, all free; returns seconds until the last one
        serves."""
        first = len(self.starts)
        for k in range(len(self.slots)):
            self._demands[model].coming += 1
            self._start(k, model, t_s)
        self.clock.until(math.inf)
        return max(one.up_s for one in self.starts[first:]) - t_s

    def _start(self, k: int, model: int, t_s: float) -> None:
        """Start a model on a slot that is free or whose last request has ended."""
        slot, fleet = self.slots[k], self.fleet
        one = Start(k, model, slot.state != "free", t_s)
        if slot.state == "free":
            slot.since_s = t_s
        elif slot.state == "serving":
            self._demands[slot.model].serving.remove(k)
        slot.state, slot.model, slot.heir = "starting", model, None
        self.starts.append(one)
        self.clock.at(t_s + (0.0 if one.switched else fleet.process_s), partial(self._weights, one))

    def _weights(self, one: Start, t_s: float) -> None:
        """Fetch a model's weights: from the slot's DRAM if they are there, else from storage."""
        one.ready_s = t_s
        slot, size = self.slots[one.slot], self.fleet.models[one.model].size_bytes
        one.hit = slot.dram.read(one.model)
        if one.hit:
            return self._load(one, t_s)
        store = self._stores.index(slot.dram)
        key = store * len(self.fleet.models) + one.model
        fetch = self._on_the_way.setdefault(key, [])
        fetch.append(partial(self._load, one))
        if len(fetch) > 1:
            return None

        def arrived(now_s: float) -> None:
            slot.dram.keep(one.model, size)
            self._most_bytes = max(self._most_bytes, sum(dram.bytes for dram in self._stores))
            for action in self._on_the_way.pop(key):
                action(now_s)

        self._fetched_bytes += size
        return self._bucket.fetch(key, size, t_s, arrived)

    def _load(self, one: Start, t_s: float) -> None:
        """Load weights from DRAM to the NPUs of a slot, and plan the start of service."""
        one.fetched_s = t_s
        one.loaded_s = t_s + self.fleet.models[one.model].load_s
        one.up_s = one.loaded_s + (self.fleet.regroup_s if one.switched else 0.0)
        self.clock.at(one.up_s, partial(self._serves, one))

    def _serves(self, one: Start, t_s: float) -> None:
        """Put a slot in service and hand it the requests that wait for its model."""
        slot, demand = self.slots[one.slot], self._demands[one.model]
        slot.state, slot.up_s, slot.done_s = "serving", t_s, t_s
        demand.coming -= 1
        insort(demand.serving, one.slot)
        if self._without:
            self._claim(one.slot, self._without.popleft())
        self._take(one.slot, t_s)

    def _arrive(self, model: int, t_s: float) -> None:
        """Take a request: to a serving slot of its model, or start one."""
        served_model, demand = self.fleet.models[model], self._demands[model]
        demand.waiting.append(len(self._arrived))
        self._arrived.append(t_s)
        self._begun.append(math.inf)
        self._model.append(model)
        for k in demand.serving:
            if not self.slots[k].taking:
                self._take(k, t_s)
                break
        if not demand.waiting:
            return
        slots = len(demand.serving) + demand.coming
        if not slots:
            self._seek(model, t_s)
        elif len(demand.waiting) / (slots * served_model.requests_per_s) > self._start_s(model):
            self._seek(model, t_s, of_idle=True)

    def _start_s(self, model: int) -> float:
        """Seconds to start one more slot for a model, if NPUs are free and no slot fetches."""
        served_model, fleet = self.fleet.models[model], self.fleet
        stored = any(model in dram.held for dram in self._stores)
        fetch_s = 0.0 if stored else served_model.size_bytes / fleet.bucket_bytes_per_s
        return fleet.process_s + served_model.load_s + fetch_s

    def _seek(self, model: int, t_s: float, *, of_idle: bool = False) -> None:
        """A slot to take: free, idle, otherwise (unless `of_idle`) a draining one of a model with
        several; slots with the model in DRAM first, then the longest idle."""

        def first(k: int) -> tuple[bool, float]:
            """Order of idle slots: those that have the weights first, then the least recently
            used."""
            return model not in self.slots[k].dram.held, self.slots[k].done_s

        def in_service(k: int) -> tuple[bool, float]:
            slot = self.slots[k]
            return len(self._demands[slot.model].serving) == 1, slot.up_s

        serving = [(k, s) for k, s in enumerate(self.slots) if s.state == "serving"]
        free = [k for k, slot in enumerate(self.slots) if slot.state == "free"]
        idle = [k for k, slot in serving if not slot.taking and slot.done_s <= t_s]
        others = [k for k, s in serving if s.model != model and s.heir is None]
        candidates = free or [k for k in idle if k in others]
        if not candidates and of_idle:
            return
        self._demands[model].coming += 1
        if candidates:
            self._start(min(candidates, key=first), model, t_s)
        elif others:
            k = min(others, key=in_service)
            self._claim(k, model)
            if not self.slots[k].taking:
                self._take(k, t_s)
        else:
            self._without.append(model)

    def _claim(self, k: int, model: int) -> None:
        """Let slot k serve the requests that have arrived, and then give it up."""
        slot = self.slots[k]
        slot.heir, slot.last = model, len(self._arrived) - 1
        self._demands[slot.model].serving.remove(k)

    def _take(self, k: int, t_s: float) -> None:
        """Begin the next request of a slot or, after the last, hand the slot over or watch it while
        idle."""
        slot = self.slots[k]
        served_model, waiting = self.fleet.models[slot.model], self._demands[slot.model].waiting
        slot.taking = False
        if waiting and (slot.heir is None or waiting[0] <= slot.last):
            self._begun[waiting.popleft()] = t_s
            self._busy_s += t_s + served_model.request_s - max(t_s, slot.done_s)
            slot.done_s, slot.taking = t_s + served_model.request_s, True
            self.clock.at(t_s + 1.0 / served_model.requests_per_s, partial(self._take, k))
        elif slot.heir is not None:
            slot.state = "leaving"
            self.clock.at(max(t_s, slot.done_s), partial(self._start, k, slot.heir))
        elif not slot.watched and self.fleet.idle_s < math.inf:
            slot.watched = True
            self.clock.at(max(t_s, slot.done_s + self.fleet.idle_s), partial(self._look, k))

    def _look(self, k: int, t_s: float) -> None:
        """Free the NPUs of a slot that was idle for long enough."""
        slot = self.slots[k]
        slot.watched = False
        if slot.state != "serving" or slot.taking or slot.heir is not None:
            return
        if slot.done_s + self.fleet.idle_s > t_s:
            self._take(k, t_s)
            return
        self._demands[slot.model].serving.remove(k)
        slot.state, slot.model = "free", -1
        self._held_s += t_s - slot.since_s
