"""The story's server left running: commands to try."""

from rich.console import Console

from lab.demo.site import OUTSIDE, SNIC, WEB_VIP, Site
from lab.l7.routes import API, WWW
from lab.programs import typed


def keep_running(site: Site, console: Console) -> None:
    """Run until Ctrl-C or the lab's end.

    Args:
        site: the running server.
        console: for people.
    """
    curl = f"{typed('uno-lab')} exec {site.name} {OUTSIDE} curl -s"
    api = f"{site.agent.address}/api/v1"
    console.print("\nIt keeps running; Ctrl-C ends it. In another terminal, try:")
    for line in (
        f"{curl} -H 'Host: {WWW}' http://{WEB_VIP}/    a request of your own; the answer names the server",
        f"{curl} -H 'Host: {API}' http://{WEB_VIP}/    routed by its host",
        f"{curl} -i http://{WEB_VIP}/old    a redirect",
        f"curl -s {api}/instances/{site.name}    the load balancer: its location and configuration",
        f'curl -s {api}/migrations --json \'{{"instance": "{site.name}", "target": "{SNIC}"}}\'    move it',
        f"curl -sN {api}/events    events, live",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"  {site.dashboard}", highlight=False, soft_wrap=True)
    try:
        site.lab.wait()
    except KeyboardInterrupt:
        return
