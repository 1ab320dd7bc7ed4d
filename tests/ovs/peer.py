"""The connecting end of a `pcie` port of a patched Open vSwitch, without Open vSwitch.

It speaks the protocol of lib/pcie-link.h and lib/pcie-ring.h, so that tests can break its rules.
"""

import mmap
import os
import select
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0x4F565350
VERSION = 1
HELLO, OFFER, READY, WAKE = 1, 2, 3, 4
# magic, version, type, receive queues, those of the other end, size of a ring, reserved
MESSAGE = struct.Struct("=IHHIIII")
WORD = struct.Struct("@I")
RECORD = struct.Struct("=IIQ")
UNIT = 64
DATA_OFFSET = 4096
HEAD, TAIL, SLEEPING = 0, 64, 128
PADDING = 0xFFFFFFFF


@dataclass
class Ring:
    """A ring in the shared memory; positions count units of 64 bytes."""

    memory: mmap.mmap
    offset: int
    size: int
    position: int = 0

    def word(self, where: int) -> int:
        return WORD.unpack_from(self.memory, self.offset + where)[0]

    def set_word(self, where: int, value: int) -> None:
        # struct would write zeros first, which the switch could read.
        with memoryview(self.memory) as memory, memory.cast("I") as words:
            words[(self.offset + where) // WORD.size] = value & 0xFFFFFFFF

    def at(self, position: int) -> int:
        return self.offset + DATA_OFFSET + position * UNIT % self.size

    def put(self, frame: bytes, tun_id: int) -> bool:
        """Adds a packet; False if the ring is too full."""
        units = -(-(RECORD.size + len(frame)) // UNIT)
        capacity = self.size // UNIT
        to_end = capacity - self.position % capacity
        padding = to_end if units > to_end else 0
        if (self.position - self.word(TAIL)) % 2**32 + padding + units > capacity:
            return False
        if padding:
            RECORD.pack_into(self.memory, self.at(self.position), PADDING, 0, 0)
            self.position += padding
        start = self.at(self.position)
        RECORD.pack_into(self.memory, start, len(frame), tun_id, 0)
        self.memory[start + RECORD.size : start + RECORD.size + len(frame)] = frame
        self.position += units
        self.set_word(HEAD, self.position)
        return True

    def get(self) -> tuple[bytes, int] | None:
        """Takes the oldest packet and its tunnel id, or None."""
        if self.word(HEAD) == self.position % 2**32:
            return None
        start = self.at(self.position)
        length, tun_id, _ = RECORD.unpack_from(self.memory, start)
        if length == PADDING:
            capacity = self.size // UNIT
            self.position += capacity - self.position % capacity
            start = self.at(self.position)
            length, tun_id, _ = RECORD.unpack_from(self.memory, start)
        frame = self.memory[start + RECORD.size : start + RECORD.size + length]
        self.position += -(-(RECORD.size + length) // UNIT)
        self.set_word(TAIL, self.position)
        return frame, tun_id


class Peer:
    """A link to a port with role=listen; `sent` are the rings to it, `received` those from it."""

    def __init__(self, path: Path, queues: int = 1, patience: float = 10) -> None:
        end = time.monotonic() + patience
        while True:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self.socket.settimeout(patience)
                self.socket.connect(str(path))
                self.message(HELLO, queues)
                data, descriptors, _, _ = socket.recv_fds(self.socket, MESSAGE.size, 4)
                if data:
                    break
                refusal: Exception = ConnectionError(f"{path}: the switch closed the connection instead of an offer")
            except OSError as error:
                refusal = error
            self.socket.close()
            if time.monotonic() > end:
                raise refusal
            time.sleep(0.02)
        _, _, kind, theirs, ours, size, _ = MESSAGE.unpack(data)
        assert kind == OFFER, f"message of type {kind} instead of an offer"
        self.memory = mmap.mmap(descriptors[0], 0)
        for descriptor in descriptors:
            os.close(descriptor)
        step = DATA_OFFSET + size
        rings = [Ring(self.memory, number * step, size) for number in range(theirs + ours)]
        self.sent, self.received = rings[:theirs], rings[theirs:]
        self.message(READY)
        _, _, kind, *_ = MESSAGE.unpack(self.socket.recv(MESSAGE.size))
        assert kind == READY, f"message of type {kind} instead of readiness"

    def message(self, kind: int, queues: int = 0, version: int = VERSION) -> None:
        self.socket.send(MESSAGE.pack(MAGIC, version, kind, queues, 0, 0, 0), socket.MSG_NOSIGNAL)

    def put(self, frame: bytes, tun_id: int = 0, queue: int = 0) -> bool:
        """Sends a packet and wakes the switch if it sleeps."""
        ring = self.sent[queue]
        stored = ring.put(frame, tun_id)
        if ring.word(SLEEPING):
            ring.set_word(SLEEPING, 0)
            self.message(WAKE)
        return stored

    def get(self, timeout: float = 10) -> tuple[bytes, int]:
        """Waits for a packet on any queue."""
        end = time.monotonic() + timeout
        while True:
            for ring in self.received:
                if packet := ring.get():
                    return packet
            for ring in self.received:
                ring.set_word(SLEEPING, 1)
            if any(ring.word(HEAD) != ring.position % 2**32 for ring in self.received):
                continue
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError(f"no packet within {timeout} s")
            if not self.socket.recv(MESSAGE.size):
                raise ConnectionError("the switch closed the link")

    def closed(self, timeout: float = 10) -> bool:
        """Waits until the switch gives the link up."""
        self.socket.settimeout(timeout)
        try:
            while self.socket.recv(MESSAGE.size):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self.socket.close()
        if hasattr(self, "memory"):
            self.memory.close()

    def __del__(self) -> None:
        self.close()
