"""The chains left running: commands to try."""

from rich.console import Console

from lab.chain.tenants import TENANTS
from lab.demo.site import Site
from lab.programs import typed


def keep_running(site: Site, console: Console) -> None:
    """Run until Ctrl-C or the lab's end.

    Args:
        site: the running server.
        console: for people.
    """
    tenant = TENANTS[0]
    console.print("\nIt keeps running; Ctrl-C ends it. Try:")
    for line in (
        site.dashboard,
        "in another terminal:",
        f"  {typed('uno-lab')} exec {site.lab.name} {tenant.client} curl -s http://{tenant.web_vip}/    a request",
        f"  {typed('unoctl')} nf assets {tenant.name}-monitor -f    what passes, line by line",
        f"  {typed('unoctl')} nf migrate {tenant.name}-firewall snic0    a move of another hop",
        f"  {typed('unoctl')} dump-flows virtual    the controller's rules",
    ):
        console.print(f"  {line}", highlight=False, soft_wrap=True)
    try:
        site.lab.wait()
    except KeyboardInterrupt:
        return
