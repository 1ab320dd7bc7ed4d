"""Writes to a store until it is killed; it prints each number after its write is acknowledged.

python -m tests.nfagent.crash_writer DIRECTORY FIRST
"""

import itertools
import sys
from pathlib import Path

from nfagent.model import Instance
from nfagent.store import Store, instances, migrations


def main() -> None:
    store = Store(Path(sys.argv[1]))
    for number in itertools.count(int(sys.argv[2])):
        name = f"nf{number}"
        wanted = Instance(name, name, "acme", "l4lb", "small", {"n": number}, {}, None, None, True, 1, float(number))
        with store.change() as change:
            instances.add(change, wanted)
            migration = migrations.request(change, wanted, "hypervisor", "snic0", "state")
        with store.change() as change:
            migrations.step(change, migration, "COMMIT")
        print(number, flush=True)


if __name__ == "__main__":
    main()
