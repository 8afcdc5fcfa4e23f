"""Links of a network that a demand may use, and those of them between its senders and receivers.

Most demands stay near their ends: what lies elsewhere is not looked at. Paths are those of fewest
hops, so the links that matter lie on walks of no more hops than the farthest pair has."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from twin.hardware.network import Network
from twin.hardware.walks import BOOLS, FLOATS, INTS

FAR = 1 << 30  # hops that no path has
HOPS = NDArray[np.int32]


class Usable:
    """Links that a demand may use: those of its plane; vertices that do not forward are left only
    by senders and entered only by receivers. out, into f8[vertices]: bytes sent and received."""

    def __init__(self, net: Network, plane: str, out: FLOATS, into: FLOATS) -> None:
        """Find the plane's links between senders and receivers, and each vertex's links."""
        self.net, self.plane, self.out, self.into = net, plane, out, into
        self.passes = net.forwards & net.bit(plane) > 0
        self.detour = int(net.about.get("detour_hops", 0))
        self.inner: BOOLS = net.once(("inner", plane), self._inner)
        self.there = self.inner.copy()
        may_leave, entered = self.passes | (out > 0.0), self.passes | (into > 0.0)
        for direction, ends in enumerate((out, into)):
            links = net.ways[direction].at(np.flatnonzero(~self.passes & (ends > 0.0)))[0]
            allowed = may_leave[net.tail[links]] & entered[net.head[links]]
            self.there[links] = net.open_links(plane)[links] & allowed
        self.at_ends = np.flatnonzero(self.there & ~self.inner)

    def _inner(self) -> BOOLS:
        """Links that are open on the plane between vertices that pass traffic on."""
        net = self.net
        return net.open_links(self.plane) & self.passes[net.tail] & self.passes[net.head]

    def at(self, vertices: INTS, way: int) -> INTS:
        """Links out of vertices (way 0) or into them (way 1)."""
        links = self.net.ways[way].at(vertices)[0]
        return links[self.there[links]]

    def ports(self) -> tuple[INTS, INTS] | None:
        """Link of every end's own port (its NIC) to its network, and the link back, both
        i8[vertices] (-1: none); None unless every end has one. A port belongs to one end, has one
        link to the network, and returns from the same vertex."""
        net, size = self.net, len(self.net.vertices)
        tail, head = net.tail[self.at_ends], net.head[self.at_ends]
        sends, receives = ~self.passes[tail], ~self.passes[head]
        # End and port of each.
        leaving, arriving = (tail[sends], head[sends]), (head[receives], tail[receives])
        owners = [np.bincount(port, minlength=size) for _, port in (leaving, arriving)]
        if not self.at_ends.size or (sends & receives).any() or np.max(owners) > 1:
            return None
        ports = np.flatnonzero(owners[0] + owners[1])
        link_sides = [links[self.inner[links]] for links in (self.at(ports, 0), self.at(ports, 1))]
        out_link, inward, owner = np.full((3, size), -1)
        out_link[net.tail[link_sides[0]]], inward[net.head[link_sides[1]]] = link_sides
        owner[leaving[1]] = leaving[0]
        out_end, back = net.head[out_link[ports]], net.tail[inward[ports]]
        out, has_in = out_link[ports] >= 0, inward[ports] >= 0
        fits = (~out | ~has_in | (out_end == back)) & (out | (owners[0][ports] == 0))
        fits &= has_in | (owners[1][ports] == 0)
        other = owner[arriving[1]]
        single = out.sum() == link_sides[0].size and has_in.sum() == link_sides[1].size
        separate = not np.isin(net.head[link_sides[0]], ports).any()
        if single and separate and fits.all() and ((other < 0) | (other == arriving[0])).all():
            return out_link, inward
        return None

    def tried(self, same_domain: bool | None) -> Iterator[tuple[INTS, int]]:
        """Yield sets of links for paths, and the maximum hops for which each is enough: first those
        that were enough for the last demand of as many ends, then the distance of the farthest of
        some pairs, then all links."""
        ends = int(np.count_nonzero(self.out)), int(np.count_nonzero(self.into))
        known = self.net.once(("farthest", self.plane, same_domain), dict[tuple[int, int], int])
        before = known.get(ends, FAR)
        if 0 < before < FAR and self.net.routing(self.plane) != "hashed":
            yield self._between(before), before
        most = known[ends] = self._farthest(same_domain) + self.detour
        if 0 < most < FAR and most != before:
            yield self._between(most), most
        yield np.flatnonzero(self.there), FAR

    def _between(self, most: int) -> INTS:
        """Links on walks of at most `most` hops from a sender to a receiver: the first half is
        searched from the senders, the second back from the receivers."""
        net, half = self.net, (most + 1) // 2
        ahead = self._hops(np.flatnonzero(self.out), 0, half)
        back = self._hops(np.flatnonzero(self.into), 1, most - half)
        link_ends = self.at(np.flatnonzero(ahead < FAR), 0), self.at(np.flatnonzero(back < FAR), 1)
        links = np.concatenate(link_ends)
        ahead, back = np.minimum(ahead, half + 1), np.minimum(back, most - half + 1)
        needed = np.zeros(net.tail.size, bool)
        needed[links[ahead[net.tail[links]] + 1 + back[net.head[links]] <= most]] = True
        return np.flatnonzero(needed)

    def _hops(self, start: INTS, way: int, most: int, targets: INTS | None = None) -> HOPS:
        """Fewest hops of every vertex from `start` (way 0) or to it (way 1), up to `most` or until
        all targets are reached; FAR otherwise."""
        hops = np.full(len(self.net.vertices), FAR, np.int32)
        hops[start] = 0
        for count in range(1, most + 1):
            if targets is not None and (hops[targets] < FAR).all():
                break
            next_vertices = (self.net.head, self.net.tail)[way][self.at(start, way)]
            next_vertices = next_vertices[hops[next_vertices] == FAR]
            if not next_vertices.size:
                break
            hops[next_vertices] = count
            start = np.flatnonzero((hops == count) & self.passes)
        return hops

    def _farthest(self, same_domain: bool | None) -> int:
        """Hops from the first sender to its farthest receiver or from the farthest sender to the
        first receiver, whichever is more; at least FAR if one is cut off."""
        domain, most = self.net.domain, 0
        senders, receivers = np.flatnonzero(self.out), np.flatnonzero(self.into)
        for direction, (near, far) in enumerate(((senders, receivers), (receivers, senders))):
            targets = far[far != near[0]]
            if same_domain is not None:
                targets = targets[(domain[targets] == domain[near[0]]) == same_domain]
            hops = self._hops(near[:1], direction, FAR, targets)[targets]
            most = max(most, int(hops.max(initial=0)))
        return most
