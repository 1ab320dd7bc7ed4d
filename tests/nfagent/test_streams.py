"""Places for clients that follow."""

import pytest

from nfagent.api.streams import Streams
from nfagent.desired import Client
from nfagent.errors import UnavailableError


def test_projects_get_a_quarter_and_administrators_a_reserve() -> None:
    streams, acme, admin = Streams(16), Client("acme", admin=False), Client("ops", admin=True)

    def take(client: Client) -> int:
        taken = 0
        while True:
            try:
                streams.take(client)
            except UnavailableError:
                return taken
            taken += 1

    back = streams.take(acme)
    assert take(acme) == 3
    back()
    assert take(acme) == 1
    assert [take(Client(f"p{number}", admin=False)) for number in range(4)] == [4, 4, 0, 0]
    assert take(admin) == 4
    least = Streams(1)
    give_back = least.take(acme)
    with pytest.raises(UnavailableError):
        least.take(admin)
    give_back()
    least.take(admin)
