"""Plays a story on a site: the frame that the stories of the demo's server share."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from rich.console import Console

from lab.demo.printing import print_begin, print_end
from lab.demo.site import Site
from lab.story import Story, tell


def play(
    starting: Site,
    open_story: Callable[[Site], AbstractContextManager[Story]],
    keep_running: Callable[[Site, Console], None],
    console: Console,
    *,
    keep: bool,
    as_json: bool,
    command: str | None = None,
) -> bool:
    """Start everything, tell the story, and print the results; return whether all checks hold.

    Args:
        starting: the server, which is not running yet.
        open_story: makes the story on the running server.
        keep_running: prints commands to try, and returns after Ctrl-C.
        console: for people; on standard error when ``as_json``.
        keep: leave it all running until Ctrl-C.
        as_json: print one JSON object on standard output at the end.
        command: that plays it, without ``uno-lab``; None: the site's name.

    Raises:
        LabError: something did not start, or ended; with its name.
    """
    with starting as site:
        with open_story(site) as story:
            print_begin(console, site)
            holds = tell(story, site.require_running, console, as_json=as_json)
            print_end(console, site, holds, keep=keep, command=command)
        if keep:
            keep_running(site, console)
    return holds
