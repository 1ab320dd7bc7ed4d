"""Stock web servers as origins: each serves the files of a directory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lab.web_path.balancers import Running, await_listening, find, nginx_config, running
from lab.web_path.path import PORT, SERVERS, WebPath

_MODULES = Path("/usr/lib/apache2/modules")


@contextlib.contextmanager
def nginx_server(path: WebPath, home: Path, http: str, core: int | None = None) -> Iterator[Running]:
    """One nginx process with this configuration, which listens on `PORT`."""
    home = home / "nginx"
    home.mkdir()
    config, log = home / "nginx.conf", home / "log"
    config.write_text(nginx_config(home, http))
    with running(path, SERVERS, [find("nginx"), "-e", str(log), "-c", str(config)], log, core=core) as program:
        await_listening(path, SERVERS, PORT, program, log)
        yield program


@contextlib.contextmanager
def nginx_origin(path: WebPath, home: Path, files: Path, core: int | None = None) -> Iterator[Running]:
    """One nginx process on all addresses."""
    listen = f"listen {PORT} backlog=4096; listen [::]:{PORT} backlog=4096;"
    # Sockets that linger after an answer would be a cost of the server that grows with the load.
    fast = "sendfile on; tcp_nopush on; lingering_close off; keepalive_timeout 300s; open_file_cache max=100;"
    with nginx_server(path, home, f"{fast}\nserver {{ {listen} root {files}; }}", core) as program:
        yield program


@contextlib.contextmanager
def apache_origin(path: WebPath, home: Path, files: Path) -> Iterator[Running]:
    """One Apache process on all addresses."""
    home = home / "apache"
    home.mkdir()
    modules = ("mpm_event", "authz_core", "dir")
    config, log = home / "httpd.conf", home / "log"
    config.write_text(
        f"ServerRoot {home}\nServerName origin\nPidFile {home}/pid\nErrorLog {home}/error.log\nListen {PORT}\n"
        + "".join(f"LoadModule {name}_module {_MODULES}/mod_{name}.so\n" for name in modules)
        + f"DocumentRoot {files}\nMaxKeepAliveRequests 0\nKeepAliveTimeout 300\n"
        f"<Directory {files}>\nRequire all granted\n</Directory>\n"
    )
    with running(path, SERVERS, [find("apache2"), "-X", "-f", str(config)], log) as program:
        await_listening(path, SERVERS, PORT, program, log)
        yield program
