"""Checks of clients' orders."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nfagent.catalog import Catalog
from nfagent.clients import Client
from nfagent.config import QuotaConfig
from nfagent.desired import Amendment, Desired
from nfagent.errors import InvalidError, QuotaError
from nfagent.model import Flavor, Kind
from nfagent.orders import Order
from nfagent.store import Store
from tests.nfagent import samples

TENANT, OTHER = Client("acme", admin=False), Client("other", admin=False)


@pytest.fixture
def desired(tmp_path: Path) -> Iterator[Desired]:
    catalog = Catalog(
        kinds={"nf": Kind("nf", "", True, (0, 0), ("nf",))},
        flavors={name: Flavor(name, workers, 256) for name, workers in (("small", 1), ("medium", 2), ("large", 4))},
        locations=("hypervisor",),
        port_numbers=(),
        quota=QuotaConfig(workers=7),
        server=b"abc",
    )
    store = Store(tmp_path / "store")
    yield Desired(store, catalog, samples.FakeFitness())
    store.close()


def test_the_quota_of_workers_counts_each_flavors_size(desired: Desired) -> None:
    desired.create(TENANT, Order("a", "nf", "large"))
    desired.create(TENANT, Order("b", "nf", "medium"))
    with pytest.raises(QuotaError, match="'acme' has 6 of at most 7 workers; 2 more were requested"):
        desired.create(TENANT, Order("c", "nf", "medium"))
    desired.create(TENANT, Order("c", "nf", "small"))
    desired.create(OTHER, Order("c", "nf", "large"))


def test_a_removed_flavor_counts_as_one_worker(desired: Desired) -> None:
    desired.create(TENANT, Order("a", "nf", "large"))
    desired.catalog.flavors.pop("large")
    for number in range(6):
        desired.create(TENANT, Order(f"b{number}", "nf", "small"))
    with pytest.raises(QuotaError, match="has 7 of at most 7 workers"):
        desired.create(TENANT, Order("c", "nf", "small"))


def test_an_instance_is_not_pinned_where_something_is_lacking(tmp_path: Path) -> None:
    fitness = samples.FakeFitness()
    catalog = Catalog(
        {"nf": Kind("nf", "", True, (0, 0), ("nf",))},
        {"small": Flavor("small", 1, 256)},
        ("hypervisor", "snic0"),
        (),
        QuotaConfig(),
        b"abc",
    )
    store = Store(tmp_path / "fit")
    desired, admin = Desired(store, catalog, fitness), Client("acme", admin=True)
    fitness.lacking["snic0"] = "snic0 lacks /etc/prads/tcp-syn.fp"
    detail = "it cannot run at snic0: snic0 lacks /etc/prads/tcp-syn.fp"
    with pytest.raises(InvalidError, match=detail) as refused:
        desired.create(admin, Order("one", "nf", "small", pin="snic0"))
    assert (refused.value.code, refused.value.field) == ("location-unfit", "pin")
    one = desired.create(admin, Order("one", "nf", "small", pin="hypervisor")).instance
    with pytest.raises(InvalidError, match=detail):
        desired.amend(admin, one.id, Amendment(pin="snic0"))
    fitness.lacking.clear()
    assert desired.amend(admin, one.id, Amendment(pin="snic0")).instance.pin == "snic0"
    store.close()
