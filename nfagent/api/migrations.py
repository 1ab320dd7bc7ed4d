"""``/api/v1/migrations``; administrators only."""

from apiflask import APIBlueprint

from nfagent.api.schemas import MigrationOrder, MigrationOut, MigrationPage, MigrationQuery
from nfagent.api.services import client, services
from nfagent.errors import UnknownError
from nfagent.store import migrations

blueprint = APIBlueprint("migrations", __name__, tag="migrations")

_EPOCH_MAX = 2**63 - 1


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
@blueprint.output(MigrationOut)
@blueprint.doc(responses=[403])
def show_migration(epoch: int) -> MigrationOut:
    """Show a migration."""
    client().require_admin("migrations")
    found = migrations.find(services().desired.store.read, epoch) if epoch <= _EPOCH_MAX else None
    if found is None:
        raise UnknownError("migration-unknown", f"unknown migration epoch {epoch}")
    return MigrationOut.of(found)
