#!/usr/bin/env python3
"""Runs os-ken applications, as `osken-manager` did before os-ken 4 dropped it.

examples/run_os_ken.py APP.py... [--ofp-tcp-listen-port 6653] [--ofp-listen-host 127.0.0.1] [--help for the rest]
"""

import os
import signal
import sys

from os_ken import cfg, log

# This registers the listening options too, before CONF() below; importing os_ken.controller.controller itself first is
# a circular import (os-ken 4.2).
from os_ken.base.app_manager import AppManager


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    apps = cfg.MultiStrOpt("app", positional=True, default=[], help="file or module of an application")
    cfg.CONF.register_cli_opts([apps])
    cfg.CONF(sys.argv[1:], project="os_ken")
    if not cfg.CONF.app:
        sys.exit("error: no application named; try: run_os_ken.py examples/learning_switch.py")
    log.init_log()
    for stop in (signal.SIGTERM, signal.SIGINT):
        # os-ken's threads wait in accept() and recv() without end: nothing else ends them.
        signal.signal(stop, lambda *_: os._exit(0))
    try:
        AppManager.run_apps(cfg.CONF.app)
    except AttributeError:
        # The clean-up of os-ken 4.2 fails (HubThread lacks kill) and hides its cause.
        host, port = cfg.CONF.ofp_listen_host, cfg.CONF.ofp_tcp_listen_port or "6653 and 6633"
        sys.exit(f"error: os-ken stopped; is another program listening on {host} port {port}?")


if __name__ == "__main__":
    main()
