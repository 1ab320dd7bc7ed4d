"""The demo left running: traffic that rises and falls, and commands to try."""

from contextlib import ExitStack

from rich.console import Console

from lab.demo.balancer import NAME
from lab.demo.site import OUTSIDE, SECOND, WEB_VIP, Site
from lab.demo.traffic import LITTLE, MUCH
from lab.errors import LabError
from lab.http_traffic import HttpClient
from lab.programs import typed
from server.processes import wait_gone

_SAME_S = 40.0
_KEPT = 10


def keep_running(site: Site, console: Console) -> None:
    """Run until Ctrl-C or the lab's end.

    Args:
        site: the running demo.
        console: for people.
    """
    _print_hints(site, console)
    try:
        with ExitStack() as stack:
            try:
                clients = [
                    stack.enter_context(HttpClient(site.lab, name, WEB_VIP, _KEPT)) for name in (OUTSIDE, SECOND)
                ]
            except LabError as error:
                console.print(f"[red]No traffic flows:[/red] {error}", soft_wrap=True)
                clients = []
            supervisor, levels = site.lab.state.pid, (MUCH, LITTLE)
            while not wait_gone(supervisor, _SAME_S):
                for client in clients:
                    client.rate(levels[0].kept, levels[0].new)
                levels = levels[::-1]
    except KeyboardInterrupt:
        return


def _print_hints(site: Site, console: Console) -> None:
    api, unoctl = f"{site.agent.address}/api/v1", typed("unoctl")
    console.print(f"\nIt keeps running; Ctrl-C ends it. Traffic rises and falls every {_SAME_S:.0f} s. Try:")
    for line in (
        site.dashboard,
        "in another terminal:",
        f"  curl -s {api}/instances/{NAME}     the load balancer: its location and configuration",
        f"  curl -sN {api}/events              events, live",
        f"  {typed('uno-lab')} exec {site.lab.name} {SECOND} curl -s http://{WEB_VIP}/    a request of your own",
        f"  {unoctl} show              the controller's view, and the server behind it",
        f"  {unoctl} dump-flows virtual    the controller's rules; `physical`: those on the switches",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
