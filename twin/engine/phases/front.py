"""The front router: it sends a request to a supernode, by what the supernodes last reported.

A request that finds no room in its supernode waits there and holds no request of another. Whether
a supernode serves at all is known at once, for it would refuse the request."""

from twin.engine import codes as w
from twin.engine.columns import World
from twin.engine.lists import append, pop, unlist
from twin.kernels.compiled import kernel
from twin.policies.router import choose_supernode

ROUNDING_S = 1e-9  # of times of steps


@kernel
def report(world: World, t0: float) -> None:
    """Note which supernodes serve and, when a report is due, requests in progress in each."""
    front, settings, decode = world.front, world.settings, world.decode
    is_open = world.instance.open
    for g in range(front.opened.size):
        prefills, decodes = not settings.has_prefill, not settings.has_decode
        for p in range(settings.prefills):
            if settings.has_prefill and front.of_prefill[p] == g:
                prefills = prefills or is_open[settings.prompt_row + p] == 1
        for d in range(decode.taken.size):
            if settings.has_decode and front.of_decode[d] == g:
                decodes = decodes or is_open[settings.prefills + d] == 1
        front.opened[g] = prefills and decodes
    if t0 + ROUNDING_S < front.due_s[0]:
        return
    for g in range(front.known.size):
        front.known[g] = front.waiting[g]
    for d in range(decode.taken.size):
        front.known[front.of_decode[d]] += decode.taken[d]
    if settings.front_report_s > 0.0:
        reports = (t0 + ROUNDING_S) // settings.front_report_s
        front.due_s[0] = (reports + 1.0) * settings.front_report_s


@kernel
def send(world: World, i: int) -> None:
    """Send request i to a supernode; one that was sent before returns to its own while that serves.
    With a report at every step the front router counts what it has sent since."""
    front, request = world.front, world.request
    g = int(request.supernode[i])
    if g == w.NONE or not front.opened[g]:
        g = choose_supernode(world.settings.front, front.opened, front.known, front.sent[0])
        if g == w.NONE:  # none serves: it waits for the one whose turn it is
            g = front.sent[0] % front.opened.size
        request.supernode[i] = g
        front.sent[0] += 1
    if world.settings.front_report_s == 0.0:
        front.known[g] += 1.0


@kernel
def wait_there(world: World, i: int) -> None:
    """Put a request at the end of its supernode's list of waiting requests."""
    g = int(world.request.supernode[i])
    append(world.front.wait, g, world.request.following, i)
    world.front.waiting[g] += 1


@kernel
def wait_no_more(world: World, g: int) -> int:
    """Take the first request that waits in a supernode."""
    world.front.waiting[g] -= 1
    return pop(world.front.wait, g, world.request.following)


@kernel
def leave_front(world: World, i: int) -> bool:
    """Take a request whose client left out of its supernode's list; False if it is in none."""
    if not world.settings.front or world.request.supernode[i] == w.NONE:
        return False
    g = int(world.request.supernode[i])
    is_waiting = unlist(world.front.wait, g, world.request.following, i)
    if is_waiting:
        world.front.waiting[g] -= 1
    return is_waiting
