"""``/api/v1/migrations``; administrators only."""

import time
from collections.abc import Callable

from apiflask import APIBlueprint
from flask import request

from nfagent.api.schemas import MigrationLook, MigrationOrder, MigrationOut, MigrationPage, MigrationQuery
from nfagent.api.services import client, services
from nfagent.api.streams import is_served
from nfagent.errors import UnknownError
from nfagent.model import Migration
from nfagent.store import Store, migrations

blueprint = APIBlueprint("migrations", __name__, tag="migrations")

_EPOCH_MAX = 2**63 - 1
_LOOK_S = 1.0  # interval of checking that a waiting client is connected and still authorised


@blueprint.post("/migrations")
@blueprint.input(MigrationOrder)
@blueprint.output(MigrationOut, status_code=202, description="Accepted and on disk")
@blueprint.doc(responses=[403, 404, 409])
def create_migration(json_data: MigrationOrder) -> MigrationOut:
    """Request a migration.

    From then on the instance is wanted at the target, until the optimiser or a client wants it elsewhere.
    """
    return MigrationOut.of(services().desired.migrate(client(), json_data.instance, json_data.target))


@blueprint.get("/migrations")
@blueprint.input(MigrationQuery, location="query")
@blueprint.output(MigrationPage)
@blueprint.doc(responses=[403, 409])
def list_migrations(query_data: MigrationQuery) -> MigrationPage:
    """List migrations, newest first."""
    client().require_admin("migrations")
    db = services().desired.store.read
    limit = query_data.limit
    found = migrations.page(db, _id(query_data.instance), query_data.outcome, limit + 1, query_data.marker)
    page = [MigrationOut.of(each) for each in found[:limit]]
    return MigrationPage(migrations=page, next=page[-1].epoch if len(found) > len(page) else None)


def _id(reference: str | None) -> str | None:
    """Return the id of the instance that a query names; a deleted one can be named by id only."""
    if reference is None:
        return None
    try:
        return services().desired.show(client(), reference).instance.id
    except UnknownError:
        return reference


@blueprint.get("/migrations/<int:epoch>")
@blueprint.input(MigrationLook, location="query")
@blueprint.output(MigrationOut)
@blueprint.doc(responses=[403, 503])
def show_migration(epoch: int, query_data: MigrationLook) -> MigrationOut:
    """Show a migration, at once or at its end.

    A client that waits for the end by ``wait_s`` takes no CPU time from the migration; one that asks again and again
    does, and packets wait longer for it. It counts as one that follows events.
    """
    known, who = services(), client()
    who.require_admin("migrations")
    store, environ = known.desired.store, request.environ
    found = migrations.find(store.read, epoch) if epoch <= _EPOCH_MAX else None
    if found is not None and found.ended is None and query_data.wait_s:
        give_back = known.streams.take(who)
        try:
            may_go_on = is_served(who, environ, lambda: known.access.client(environ))
            found = _await_end(store, epoch, query_data.wait_s, may_go_on)
        finally:
            give_back()
    if found is None:
        raise UnknownError("migration-unknown", f"unknown migration epoch {epoch}")
    return MigrationOut.of(found)


def _await_end(store: Store, epoch: int, wait_s: float, may_go_on: Callable[[], bool]) -> Migration | None:
    """Return a migration once it has ended, after ``wait_s``, or when the wait may not go on."""
    deadline = time.monotonic() + wait_s
    while True:
        seen = store.last_event  # before reading, so that an end meanwhile is not missed
        found = migrations.find(store.read, epoch)
        left = deadline - time.monotonic()
        if found is None or found.ended is not None or left <= 0 or store.is_ending or not may_go_on():
            return found
        store.wait(seen, min(left, _LOOK_S), ("migration.ended",))
