"""The memory pool: published LRU vectors, prefixes, and a dictionary as its oracle."""

from collections import OrderedDict, namedtuple
from random import Random

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.draws import draws, some
from tests.jit import compiled
from twin.policies.memory_pool import (
    ABSENT,
    NONE,
    add_requested_blocks,
    count_absent,
    empty_pool,
    lose_server,
    matched_blocks,
    resize_pool,
    server_of,
    set_clock,
    use_block,
    use_chain,
)

NO_SSD = empty_pool(1, 1, 0)
UP = np.ones(8, np.int8)  # servers, all of them up
BELADY = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]
IN_TURN = [i % 120 for i in range(2400)]


def popular(n=20_000):
    """Keys of the linear congruential generator of the reliability notes, popular ones first."""
    v, keys = 1, []
    for _ in range(n):
        v = (1103515245 * v + 12345) % 2**31
        keys.append(((v >> 8) % 1000) * ((v >> 20) % 1000) // 1000)
    return keys


def misses(keys, room):
    pool = empty_pool(1, max(keys) + 1, room)
    missed = 0
    for key in keys:
        missed += pool.newer[0, key] == ABSENT
        use_block(pool, 0, key)
    return missed


@pytest.mark.parametrize(
    ("keys", "by_room"),
    [
        (BELADY, {1: 12, 2: 12, 3: 10, 4: 8, 5: 5}),
        (IN_TURN, {100: 2400, 200: 120, 400: 120}),
        (popular(), {100: 15829, 200: 12440, 400: 7117}),
    ],
    ids=["Belady", "in turn", "popular"],
)
def test_lru_misses_of_published_sequences(keys, by_room):
    assert {room: misses(keys, room) for room in by_room} == by_room


def test_more_room_never_misses_more():
    missed = [misses(popular(4000), room) for room in (1, 5, 50, 120, 400, 1000)]
    assert missed == sorted(missed, reverse=True)


Chains = namedtuple("Chains", "segment_offset segment_first segment_blocks")


def chain(*runs):
    """A chain of runs (first id, ids) as the kernels take it, and its number."""
    first = np.array([first for first, _ in runs], np.int64)
    return Chains(np.array([0, len(runs)]), first, np.array([n for _, n in runs], np.int32)), 0


def hit_tokens(cached, asked, block=16):
    """Tokens that hit when prompts are lists of token ids and one of them is cached."""
    ids = {}

    def run(tokens):
        whole = [tuple(tokens[: k + block]) for k in range(0, len(tokens) - block + 1, block)]
        return chain(*((ids.setdefault(prefix, len(ids)), 1) for prefix in whole))

    first, second = run(cached), run(asked)
    pool = empty_pool(1, 100, 100)
    use_chain(pool, 0, *first, len(cached) // block)
    return block * matched_blocks(pool, NO_SSD, False, 0, *second, 0)


def test_prefix_vector():
    cached = list(range(40))  # two whole blocks of 16
    other = [-1] * 40
    asked = {
        "same": cached,
        "first 32": cached[:32],
        "first 31": cached[:31],
        "diverges at 20": cached[:20] + other,
        "diverges at 0": other,
        "longer": cached + other,
    }
    found = {name: hit_tokens(cached, tokens) for name, tokens in asked.items()}
    assert list(found.values()) == [32, 32, 16, 16, 0, 32]


def test_a_parent_outlives_its_children():
    pool = empty_pool(1, 10, 3)
    use_chain(pool, 0, *chain((0, 3)), 3)
    use_block(pool, 0, 9)
    assert [pool.newer[0, b] != ABSENT for b in (0, 1, 2, 9)] == [True, True, False, True]


def test_a_pool_without_room_keeps_nothing():
    pool = empty_pool(1, 4, 0)
    use_chain(pool, 0, *chain((0, 4)), 4)
    assert pool.used[0] == 0
    assert matched_blocks(pool, NO_SSD, False, 0, *chain((0, 4)), 0) == 0


class Reference:
    """A tier of any policy by plain dictionaries: what is held, and what it may do."""

    def __init__(self, room):
        self.room, self.evicted, self.lists = room, 0, [OrderedDict()]

    @property
    def held(self):
        return {block for queue in self.lists for block in queue}

    def touch(self, block, now_s=0.0):
        if block in self.held:
            self.used_again(block, now_s)
        elif self.room > 0:
            if len(self.held) >= self.room:
                self.evict()
            self.enter(block, now_s)

    def used_again(self, block, now_s):
        self.lists[0].move_to_end(block)
        self.lists[0][block] = now_s

    def enter(self, block, now_s):
        self.lists[0][block] = now_s

    def evict(self):
        next(queue for queue in self.lists if queue).popitem(last=False)
        self.evicted += 1

    def drop(self, block):
        for queue in self.lists:
            queue.pop(block, None)

    def resize(self, room):
        self.room = room
        while len(self.held) > room:
            self.evict()

    def look(self, now_s):
        pass


class LeastFrequent(Reference):
    def __init__(self, room):
        super().__init__(room)
        self.lists = [OrderedDict() for _ in range(16)]

    def used_again(self, block, now_s):
        level = next(k for k, queue in enumerate(self.lists) if block in queue)
        del self.lists[level][block]
        self.lists[min(level + 1, 15)][block] = now_s


class TimeToLive(Reference):
    def look(self, now_s):
        for block in [b for b, at in self.lists[0].items() if at < now_s - 5.0]:
            del self.lists[0][block]
            self.evicted += 1


class S3Fifo(Reference):
    """Yang et al., SOSP 2023, Algorithm 1; values are uses since a block came, at most 3."""

    def __init__(self, room):
        super().__init__(room)
        self.small, self.main, self.ghost = OrderedDict(), OrderedDict(), []
        self.lists = [self.small, self.main]

    def used_again(self, block, now_s):
        queue = self.small if block in self.small else self.main
        queue[block] = min(queue[block] + 1, 3)

    def enter(self, block, now_s):
        most = self.room - self.room // 10
        lately = block in self.ghost[max(0, len(self.ghost) - most) :] if most else False
        (self.main if lately else self.small)[block] = 0

    def evict(self):
        while True:
            if self.small and (10 * len(self.small) >= self.room or not self.main):
                block, uses = self.small.popitem(last=False)
                if uses <= 1:
                    self.ghost.append(block)
                    break
                self.main[block] = 0
            else:
                block, uses = self.main.popitem(last=False)
                if uses == 0:
                    break
                self.main[block] = uses - 1
        self.evicted += 1


class LibCacheSim(Reference):
    """S3-FIFO as libCacheSim 0.3.5 has it: a block is promoted after two uses, forgotten of the
    ghost when it comes back, and goes to the main queue while the cache fills and the small one
    is full."""

    def __init__(self, room):
        super().__init__(room)
        self.small, self.main, self.ghost = OrderedDict(), OrderedDict(), OrderedDict()
        self.lists = [self.small, self.main]

    def used_again(self, block, now_s):
        (self.small if block in self.small else self.main)[block] += 1

    def touch(self, block, now_s=0.0):
        self.lately = block in self.ghost and block not in self.held
        if self.lately:
            del self.ghost[block]
        super().touch(block, now_s)

    def enter(self, block, now_s):
        filling = not self.evicted and len(self.small) >= self.room // 10
        (self.main if self.lately or filling else self.small)[block] = 0

    def evict(self):
        if len(self.main) > self.room - self.room // 10 or not self.small:
            while (entry := self.main.popitem(last=False))[1]:
                self.main[entry[0]] = min(entry[1], 3) - 1
            self.evicted += 1
            return
        while self.small:
            block, uses = self.small.popitem(last=False)
            if uses < 2:
                self.ghost[block] = None
                if len(self.ghost) > 9 * self.room // 10:
                    self.ghost.popitem(last=False)
                self.evicted += 1
                return
            self.main[block] = 0
        self.evict()


S3_FIFO_MISSES = {  # published: of libCacheSim, by room
    "in turn": (IN_TURN, {50: 1545, 100: 1137, 200: 120, 400: 120}),
    "popular": (popular(), {50: 16539, 100: 14350, 200: 10960, 400: 6170}),
}


@pytest.mark.parametrize("name", S3_FIFO_MISSES)
def test_s3_fifo_misses_as_often_as_the_library_of_its_authors(name):
    """The twin follows the paper, whose filling cache knows no shortcut to the main queue."""
    keys, published = S3_FIFO_MISSES[name]
    for room, misses_ in published.items():
        library, pool, missed = LibCacheSim(room), empty_pool(1, 1000, room, "s3_fifo", 1e9), [0, 0]
        for key in keys:
            missed[0] += key not in library.small and key not in library.main
            library.touch(key)
            missed[1] += int(pool.newer[0, key] == ABSENT)
            use_chain(pool, 0, *chain((key, 1)), 1)
        assert missed[0] == misses_
        if name == "popular":
            assert missed[1] == pytest.approx(misses_, rel=0.01)


REFERENCES = {"lru": Reference, "lfu": LeastFrequent, "s3_fifo": S3Fifo, "ttl": TimeToLive}


OPERATIONS = some([2_000], 10_000)


@pytest.mark.parametrize("operations", OPERATIONS)
@pytest.mark.parametrize("policy", REFERENCES)
def test_blocks_are_conserved_over_thousands_of_operations_of_every_policy(policy, operations):
    """Inserts, evictions, two tiers, servers that fail and come back, against dictionaries."""
    random = Random(7)
    blocks, servers = 200, 4
    tiers = [empty_pool(1, blocks, room, policy, 5.0) for room in (60, 120)]
    known = [REFERENCES[policy](room) for room in (60, 120)]
    lost = [0, 0]
    now_s = 0.0
    for _ in range(operations):
        act = random.random()
        if act < 0.9:
            first, count = int(blocks * random.random() ** 3), random.randrange(1, 9)
            asked = chain((first, min(count, blocks - first)))
            hit = matched_blocks(*tiers, True, 0, *asked, 0)
            ids = range(first, min(first + count, blocks))
            held = [any(block in tier.held for tier in known) for block in ids]
            assert hit == next((k for k, there in enumerate(held) if not there), len(ids))
            for tier, reference in zip(tiers, known, strict=True):
                use_chain(tier, 0, *asked, len(ids))
                for block in reversed(ids):
                    reference.touch(block, now_s)
        elif act < 0.93:
            now_s += 4.0 * random.random()
            for tier, reference in zip(tiers, known, strict=True):
                set_clock(tier, 0, now_s)
                reference.look(now_s)
        elif act < 0.96:
            server, keeps = random.randrange(servers), random.randrange(2)
            gone = [b for b in known[0].held if server_of(b, UP, servers) == server]
            assert lose_server(*tiers, 0, server, UP[:servers], keeps) == len(gone)
            for block in gone:
                lost[0] += 1
                known[0].drop(block)
                if not keeps:
                    lost[1] += block in known[1].held
                    known[1].drop(block)
        else:  # servers go and come back
            room = random.choice((0, 30, 60))
            resize_pool(tiers[0], 0, room)
            known[0].resize(room)
        for tier, reference in zip(tiers, known, strict=True):
            assert tier.used[0] == len(reference.held) <= max(reference.room, 0)
            assert tier.evicted[0] == reference.evicted
            assert tier.held[0].sum() in (tier.used[0], 0)  # of one list nobody counts
    for tier, reference in zip(tiers, known, strict=True):
        resident = set(np.flatnonzero(tier.newer[0] != ABSENT).tolist())
        assert resident == reference.held
        assert reference.evicted > operations / 10  # so that something was at stake
    assert min(lost) > operations / 100


def test_what_is_often_used_outlives_a_scan_where_use_counts():
    popular, scan = list(range(8)) * 4, list(range(20, 120))
    left = {}
    for policy in REFERENCES:
        pool = empty_pool(1, 120, 20, policy, 1e9)
        for block in [*popular, *scan]:
            use_chain(pool, 0, *chain((block, 1)), 1)
        left[policy] = int((pool.newer[0, :8] != ABSENT).sum())
    assert left == {"lru": 0, "ttl": 0, "lfu": 8, "s3_fifo": 8}


class LruDictionary(OrderedDict):
    """The oracle of a tier: keys in order of use, the least recently used first."""

    def __init__(self, room):
        super().__init__()
        self.room, self.evicted = room, 0

    def touch(self, block):
        if block in self:
            self.move_to_end(block)
        elif self.room:
            if len(self) == self.room:
                self.popitem(last=False)
                self.evicted += 1
            self[block] = True

    def drop(self, block):
        self.pop(block, None)


class TiersAgainstDictionaries(RuleBasedStateMachine):
    """Two rows of two tiers beside ordered dictionaries.

    Every chain is written to both tiers; what is read and DRAM lacks comes back to it; a server
    that fails empties its part of DRAM.
    """

    rows = st.integers(0, 1)
    runs = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4)), max_size=4)
    functions = (matched_blocks, use_block, use_chain, count_absent, lose_server)

    @initialize(room=st.integers(0, 12), ssd_room=st.integers(0, 20))
    def begin(self, room, ssd_room):
        self.tiers = [empty_pool(2, 24, room), empty_pool(2, 24, ssd_room)]
        self.known = [[LruDictionary(r) for _ in range(2)] for r in (room, ssd_room)]

    @rule(row=rows, block=st.integers(0, 23), tier=st.integers(0, 1))
    def keep_one(self, row, block, tier):
        self.functions[1](self.tiers[tier], row, block)
        self.known[tier][row].touch(block)

    @rule(row=rows, runs=runs, share=st.floats(0, 1))
    def keep_many(self, row, runs, share):
        blocks = [first + k for first, n in runs for k in range(n)]
        wanted = int(share * len(blocks))
        for tier, known in zip(self.tiers, self.known, strict=True):
            self.functions[2](tier, row, *chain(*runs), wanted)
            for block in reversed(blocks[:wanted]):
                known[row].touch(block)

    @rule(row=rows, runs=runs, ssd_open=st.booleans(), skip=st.integers(0, 3))
    def read(self, row, runs, ssd_open, skip):
        dram, ssd = (known[row] for known in self.known)
        hit = []
        for k, block in enumerate(first + k for first, n in runs for k in range(n)):
            if k >= skip and block not in dram and not (ssd_open and block in ssd):
                break
            hit.append(block)
        asked = chain(*runs)
        assert self.functions[0](*self.tiers, ssd_open, row, *asked, skip) == len(hit)
        cold = sum(block not in dram for block in hit[skip:])
        assert self.functions[3](self.tiers[0], row, *asked, len(hit), skip) == cold
        if cold:
            self.functions[2](self.tiers[0], row, *asked, len(hit))
            for block in reversed(hit):
                dram.touch(block)

    @rule(row=rows, server=st.integers(0, 2), keeps=st.integers(0, 1))
    def fail(self, row, server, keeps):
        dram, ssd = (known[row] for known in self.known)
        gone = [block for block in dram if server_of(block, UP, 3) == server]
        assert self.functions[4](*self.tiers, row, server, UP[:3], keeps) == len(gone)
        for block in gone:
            dram.drop(block)
            if not keeps:
                ssd.drop(block)

    @invariant()
    def same_blocks_in_the_same_order(self):
        for tier, rows in zip(getattr(self, "tiers", ()), getattr(self, "known", ()), strict=True):
            for row, known in enumerate(rows):
                linked, at = [], tier.oldest[row, 0]
                while at != NONE:
                    linked.append(int(at))
                    at = tier.newer[row, at]
                assert linked == list(known)
                assert tier.used[row] == len(known) <= known.room
                assert tier.evicted[row] == known.evicted
                assert (tier.newer[row] != ABSENT).sum() == len(known)


class CompiledTiersAgainstDictionaries(TiersAgainstDictionaries):
    """The same with the kernels compiled."""

    functions = (*map(compiled, TiersAgainstDictionaries.functions[:4]), lose_server)


SETTINGS = draws(60, stateful_step_count=60)
TestPool = TiersAgainstDictionaries.TestCase
TestPool.settings = SETTINGS
TestCompiledPool = CompiledTiersAgainstDictionaries.TestCase
TestCompiledPool.settings = draws(20, stateful_step_count=60)


@pytest.mark.parametrize("operations", OPERATIONS)
def test_tenants_tiers_and_quotas_are_conserved_over_thousands_of_operations(operations):
    """A namespace is a row: no tenant moves a block of another, and each row of each tier is its
    own LRU, over inserts, evictions, changes of quota and servers that fail and come back."""
    random = Random(11)
    blocks, servers, quotas = 200, 4, np.array([60, 20, 0])
    tiers = [empty_pool(3, blocks, times * quotas) for times in (1, 2)]
    known = [[Reference(int(times * room)) for room in quotas] for times in (1, 2)]
    for _ in range(operations):
        tenant, act = random.randrange(3), random.random()
        others = [t for t in range(3) if t != tenant]
        before = [(tier.newer[others].copy(), tier.evicted[others].copy()) for tier in tiers]
        dram, ssd = (tier[tenant] for tier in known)
        if act < 0.9:
            first, count = int(blocks * random.random() ** 2), random.randrange(1, 9)
            ids = range(first, min(first + count, blocks))
            asked = chain((first, len(ids)))
            ssd_open = random.random() < 0.5
            hit = matched_blocks(*tiers, ssd_open, tenant, *asked, 0)
            held = [block in dram.held or (ssd_open and block in ssd.held) for block in ids]
            assert hit == next((k for k, there in enumerate(held) if not there), len(ids))
            for tier, reference in zip(tiers, (dram, ssd), strict=True):
                use_chain(tier, tenant, *asked, len(ids))
                for block in reversed(ids):
                    reference.touch(block)
        elif act < 0.95:
            server, keeps = random.randrange(servers), random.randrange(2)
            gone = [b for b in dram.held if server_of(b, UP, servers) == server]
            assert lose_server(*tiers, tenant, server, UP[:servers], keeps) == len(gone)
            for block in gone:
                dram.drop(block)
                if not keeps:
                    ssd.drop(block)
        else:
            room = random.choice((0, 10, 60)) * int(quotas[tenant]) // 60
            resize_pool(tiers[0], tenant, room)
            dram.resize(room)
        for tier, (newer, evicted) in zip(tiers, before, strict=True):
            assert (tier.newer[others] == newer).all() and (tier.evicted[others] == evicted).all()
        for tier, rows in zip(tiers, known, strict=True):
            for t, reference in enumerate(rows):
                resident = np.flatnonzero(tier.newer[t] != ABSENT)
                assert set(resident.tolist()) == reference.held
                assert tier.used[t] == resident.size <= max(reference.room, 0)
                assert tier.evicted[t] == reference.evicted
    assert known[0][0].evicted > operations / 100 and known[0][1].evicted > operations / 10
    assert known[1][1].evicted > operations / 20 and known[0][2].evicted == known[1][2].evicted == 0


def test_servers_are_asked_as_unevenly_as_chance_has_it():
    """Ids that follow each other, as those of a prompt do, lie like balls thrown at random: their
    counts vary by what a multinomial's do, neither less (shared out in turn) nor more."""
    servers, run = 8, 64
    up = UP[:servers]
    seen = np.zeros((200, servers))
    for k in range(200):
        homes = np.arange(servers)
        add_requested_blocks(*chain((k * run, run)), run, 0, up, servers, homes, seen[k])
    assert (seen.sum(axis=1) == run).all()
    assert seen.sum(axis=0) == pytest.approx(200 * run / servers, rel=0.06)
    assert seen.var() == pytest.approx(run / servers * (1 - 1 / servers), rel=0.12)


def test_a_server_that_goes_takes_no_block_of_another_along():
    servers, gone = 6, 2
    left = UP[:servers].copy()
    left[gone] = 0
    before = np.array([server_of(block, UP, servers) for block in range(3_000)])
    after = np.array([server_of(block, left, servers) for block in range(3_000)])
    assert (before[before != gone] == after[before != gone]).all()
    moved = np.bincount(after[before == gone], minlength=servers)
    assert moved[gone] == 0 and moved.sum() == (before == gone).sum()
    assert np.delete(moved, gone) == pytest.approx(moved.sum() / (servers - 1), rel=0.35)
