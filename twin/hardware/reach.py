"""Links of a network that a demand may use, and those of them between its senders and receivers.

Most demands stay near their ends: what lies elsewhere is not looked at. Paths are those of fewest
hops, so the links that matter lie on walks of no more hops than the farthest pair has."""

from collections.abc import Iterator

import numpy as np

from twin.hardware.network import Network
from twin.hardware.walks import BOOLS, FLOATS, INTS, hops_from

FAR = 1 << 30  # hops that no path has


class Usable:
    """Links that a demand may use: the open links of its plane, except that vertices which do not
    forward are left only by senders and entered only by receivers."""

    def __init__(self, net: Network, plane: str, out: FLOATS, into: FLOATS) -> None:
        """plane: the demand's; out, into f8[vertices]: bytes/s that vertices send, receive."""
        self.net, self.plane, self.out, self.into = net, plane, out, into
        self.passes = net.forwards & net.bit(plane) > 0
        self.detour = int(net.about.get("detour_hops", 0))
        self.inner: BOOLS = net.once(  # open links of the plane between two forwarding vertices
            ("inner", plane),
            lambda: net.open_links(plane) & self.passes[net.tail] & self.passes[net.head],
        )
        self.is_usable = self.inner.copy()
        may_leave, may_enter = self.passes | (out > 0.0), self.passes | (into > 0.0)
        for direction, end_bytes in enumerate((out, into)):
            end_links = net.link_lists[direction].at(
                np.flatnonzero(~self.passes & (end_bytes > 0.0))
            )[0]
            may_carry = may_leave[net.tail[end_links]] & may_enter[net.head[end_links]]
            self.is_usable[end_links] = net.open_links(plane)[end_links] & may_carry
        self.at_ends = np.flatnonzero(self.is_usable & ~self.inner)

    def links(self, vertices: INTS, way: int) -> INTS:
        """Numbers of the usable links out of `vertices` (way 0) or into them (way 1)."""
        links = self.net.link_lists[way].at(vertices)[0]
        return links[self.is_usable[links]]

    def port_links(self) -> tuple[INTS, INTS] | None:
        """(link from every end's port, its NIC, to the network; link back to the port), both
        i8[vertices], -1: none. None unless every end has a port. A port belongs to one end, has one
        link to the network, and its link back starts at the same vertex."""
        net, vertex_count = self.net, len(self.net.vertices)
        tail, head = net.tail[self.at_ends], net.head[self.at_ends]
        comes_from_endpoint, leads_to_endpoint = ~self.passes[tail], ~self.passes[head]
        # End and port of each.
        out_pair, in_pair = (
            (tail[comes_from_endpoint], head[comes_from_endpoint]),
            (head[leads_to_endpoint], tail[leads_to_endpoint]),
        )
        end_counts = [np.bincount(port, minlength=vertex_count) for _, port in (out_pair, in_pair)]
        if (
            not self.at_ends.size
            or (comes_from_endpoint & leads_to_endpoint).any()
            or np.max(end_counts) > 1
        ):
            return None
        ports = np.flatnonzero(end_counts[0] + end_counts[1])
        links_by_way = [self.links(ports, way) for way in (0, 1)]
        inner_links = [links[self.inner[links]] for links in links_by_way]
        out_link, in_link, sender_of_port = np.full((3, vertex_count), -1)
        out_link[net.tail[inner_links[0]]], in_link[net.head[inner_links[1]]] = inner_links
        sender_of_port[out_pair[1]] = out_pair[0]
        out_end, in_end = net.head[out_link[ports]], net.tail[in_link[ports]]
        has_out, has_in = out_link[ports] >= 0, in_link[ports] >= 0
        has_matching_links = (~has_out | ~has_in | (out_end == in_end)) & (
            has_out | (end_counts[0][ports] == 0)
        )
        has_matching_links &= has_in | (end_counts[1][ports] == 0)
        port_senders = sender_of_port[in_pair[1]]
        is_unique = has_out.sum() == inner_links[0].size and has_in.sum() == inner_links[1].size
        no_linked_ports = not np.isin(net.head[inner_links[0]], ports).any()
        has_same_owner = ((port_senders < 0) | (port_senders == in_pair[0])).all()
        all_fit = is_unique and no_linked_ports and has_same_owner and has_matching_links.all()
        return (out_link, in_link) if all_fit else None

    def link_sets(self, same_domain: bool | None) -> Iterator[tuple[INTS, int]]:
        """Yield (links, hops): within `links`, paths of up to `hops` hops are complete. First come
        links near enough for the farthest of some pairs, then all. same_domain: True for pairs
        within one scale-up domain, False for pairs of two, None for all."""
        most_hops = self._most_hops(same_domain) + self.detour
        if 0 < most_hops < len(self.net.vertices):
            yield self._near_links(most_hops), most_hops
        yield np.flatnonzero(self.is_usable), FAR

    def _near_links(self, most_hops: int) -> INTS:
        """Links on walks of at most `most_hops` from a sender to a receiver."""
        hops_out = self._hops(np.flatnonzero(self.out), 0)[self.net.tail]
        hops_in = self._hops(np.flatnonzero(self.into), 1)[self.net.head]
        return np.flatnonzero(self.is_usable & (hops_out + 1 + hops_in <= most_hops))

    def _hops(self, start: INTS, way: int) -> INTS:
        """Fewest hops from `start` to each vertex (way 0), or from each vertex to `start` (way 1);
        the number of all vertices if not reached."""
        passes_on = self.passes.copy()
        passes_on[start] = True
        near_end, far_end = (self.net.tail, self.net.head)[:: 1 - 2 * way]
        links = np.flatnonzero(self.is_usable & passes_on[near_end])
        return hops_from(start, near_end[links], far_end[links], passes_on.size)

    def _most_hops(self, same_domain: bool | None) -> int:
        """The larger of the hops from the first sender to its farthest receiver and from the
        farthest sender to the first receiver. same_domain: as of `link_sets`."""
        domain_of, most_hops = self.net.domain, 0
        senders, receivers = np.flatnonzero(self.out), np.flatnonzero(self.into)
        sides = (senders, receivers), (receivers, senders)
        for way, (near_ends, far_ends) in enumerate(sides):
            targets = far_ends[far_ends != near_ends[0]]
            if same_domain is not None:
                targets = targets[(domain_of[targets] == domain_of[near_ends[0]]) == same_domain]
            target_hops = self._hops(near_ends[:1], way)[targets]
            most_hops = max(most_hops, int(target_hops.max(initial=0)))
        return most_hops
