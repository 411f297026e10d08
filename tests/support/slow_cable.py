"""A cable that delays and loses packets.

The cable consists of two network devices in two namespaces, and this program between them. Run it
as root by `python slow_cable.py SPACE DEVICE SPACE DEVICE DELAY_S LOSS`. A packet that is sent
through the device of one namespace arrives in the other namespace DELAY_S later. The share LOSS of
all packets is lost. The program prints `ready` when both devices exist, and the devices are removed
when the program ends. `tc netem` is not used, because many kernels lack it.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time
from pathlib import Path

TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def device(space: str, name: str) -> int:
    """Make a network device in a namespace, and return a file descriptor of the device.

    Reading from the descriptor returns a packet that a program in the namespace has sent through
    the device. A packet that is written to the descriptor arrives in the namespace, as if the
    device had received it from a network.
    """
    with (Path("/var/run/netns") / space).open("rb") as namespace:
        if LIBC.setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {space}")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def carry(ends: tuple[int, int], delay_s: float, loss: float) -> None:
    """Carry packets between the two devices, in both directions, and never return.

    `ends` are the file descriptors of the devices.
    """
    chance = random.Random(1)
    number = 0
    under_way: list[tuple[float, int, int, bytes]] = []
    other = dict(zip(ends, ends[::-1], strict=True))
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait)[0]:
            packet = os.read(end, 65536)
            if chance.random() >= loss:
                number += 1
                heapq.heappush(under_way, (time.monotonic() + delay_s, number, other[end], packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(under_way)
            with contextlib.suppress(
                OSError
            ):  # a device that is down, or whose queue is full, drops the packet
                os.write(end, packet)


if __name__ == "__main__":
    space, name, far_space, far_name, delay, lost = sys.argv[1:]
    both = device(space, name), device(far_space, far_name)
    print("ready", flush=True)
    carry(both, float(delay), float(lost))
