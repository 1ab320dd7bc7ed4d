"""``/api/v1/logs``: what the processes of instances say."""

from apiflask import APIBlueprint

from nfagent.api.schemas import LogOut, LogQuery
from nfagent.api.services import client, services

blueprint = APIBlueprint("logs", __name__, tag="instances")


@blueprint.get("/logs/<path:reference>")
@blueprint.input(LogQuery, location="query")
@blueprint.output(LogOut)
@blueprint.doc(responses=[409, 503])
def show_log(reference: str, query_data: LogQuery) -> LogOut:
    """Show an instance's newest output, or what it has said ``after`` the position of an earlier answer.

    Tenants see ``...`` in place of the names of this server's parts.
    """
    view = services().desired.show(client(), reference)
    said = services().logs.read(view, query_data.after, query_data.most, older=query_data.previous)
    text = services().discretion.output(said.text, admin=client().admin)
    return LogOut(text=text, position=said.position, more=said.more)
