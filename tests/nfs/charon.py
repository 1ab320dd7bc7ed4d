"""strongSwan's charon in a host: with kernel-nf, which keys a function ``ipsec``, or with strongSwan's libipsec."""

import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any, Protocol

from lab.server import HostProcess
from tests.nfagent.certificates import write_certificate
from tests.nfs.awaiting import await_that

STRONGSWAN = Path(sys.executable).with_name("strongswan")
"""The command that tools/prepare writes."""

_SETTINGS = """
charon {{
    load = random nonce openssl kdf pem pkcs1 pkcs8 x509 constraints {kernel} kernel-netlink socket-default vici
    install_routes = {install_routes}
    retransmit_timeout = 0.2
    retransmit_tries = 3
    make_before_break = yes
    filelog {{
        stderr {{
            default = {level}
        }}
    }}
    plugins {{
        kernel-nf {{
            socket = {socket}
            interval = {interval}
        }}
        vici {{
            socket = unix://{vici}
        }}
    }}
}}
swanctl {{
    load = random openssl pem pkcs1 pkcs8 x509
}}
"""
_CONNECTION = """
connections {{
    peer {{
        version = 2
        {ends}
        proposals = aes256gcm16-prfsha384-ecp384
        mobike = no
        {more}
        local {{
            auth = {auth}
            id = {own}
            {certificate}
        }}
        remote {{
            auth = {auth}
            id = {other}
        }}
        children {{
            net {{
                local_ts = {local}
                remote_ts = {remote}
                esp_proposals = {proposals}
                rekey_time = 1h
                {limits}
            }}
        }}
    }}
}}
secrets {{
    ike-peer {{
        id-1 = west
        id-2 = east
        secret = "for tests"
    }}
}}
"""
_OTHER = {"west": "east", "east": "west"}


class Started(Protocol):
    """Starts a program in the daemon's host; the options are those of `subprocess.Popen`."""

    def __call__(self, argv: list[str], **options: Any) -> HostProcess: ...


class Charon:
    """A daemon that listens; it ends with its host, if not before.

    Args:
        directory: for its socket, configuration and log.
        end: ``west`` or ``east``, which is its identity.
        start: starts programs in its host.
        kernel: the plugin that has the associations.
        socket: of the function, for kernel-nf.
        install_routes: whether it writes routes to the peers' networks.
        level: of its log.
        interval: between kernel-nf's looks at the function, in milliseconds.
    """

    def __init__(
        self,
        directory: Path,
        end: str,
        start: Started,
        *,
        kernel: str = "kernel-nf",
        socket: str = "none",
        install_routes: bool = False,
        level: int = 1,
        interval: int = 100,
    ) -> None:
        self.directory, self.end = directory, end
        self._start = start
        self.log_path, self._vici = directory / f"{end}.log", directory / f"{end}.vici"
        self._settings, self._folder = directory / f"{end}.conf", directory / f"{end}.d"
        self._settings.write_text(
            _SETTINGS.format(
                kernel=kernel,
                socket=socket,
                install_routes="yes" if install_routes else "no",
                level=level,
                interval=interval,
                vici=self._vici,
            )
        )
        self._vici.unlink(missing_ok=True)
        # swanctl reads keys and certificates from folders beside its file.
        (self._folder / "private").mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = start(self._program("charon"), stderr=log, stdout=log)
        await_that(self._listens)

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log()
        return self._vici.exists()

    def _program(self, *command: str) -> list[str]:
        return ["env", f"STRONGSWAN_CONF={self._settings}", str(STRONGSWAN), *command]

    def swanctl(self, *command: str, check: bool = True) -> str:
        """Run ``swanctl``; return its output."""
        argv = self._program("swanctl", *command, f"--uri=unix://{self._vici}")
        process = self._start(argv, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0 or not check, f"swanctl {' '.join(command)}: {said}{self.log()}"
        return said

    def load(
        self,
        ends: str,
        networks: dict[str, str],
        *,
        limits: str = "",
        proposals: str = "aes256gcm16-ecp384-noesn",
        more: str = "",
        certified: bool = False,
    ) -> None:
        """Give it its connection.

        Args:
            ends: the lines with addresses.
            networks: the prefix behind each end.
            limits: lines of the child.
            proposals: of ESP.
            more: lines of the connection.
            certified: whether it has a certificate, see `certify`, instead of a preshared key.
        """
        own, other = [f'"CN={end}"' if certified else end for end in (self.end, _OTHER[self.end])]
        text = _CONNECTION.format(
            own=own,
            other=other,
            ends=ends,
            local=networks[self.end],
            remote=networks[_OTHER[self.end]],
            limits=limits,
            proposals=proposals,
            more=more,
            auth="pubkey" if certified else "psk",
            certificate=f"certs = {self._folder}/x509ca/{self.end}.pem" if certified else "",
        )
        self.load_text(text)

    def load_text(self, text: str) -> None:
        """Give it the content of a ``swanctl.conf``."""
        path = self._folder / "swanctl.conf"
        path.write_text(text)
        self.swanctl("--load-all", "--noprompt", f"--file={path}")

    def certify(self) -> None:
        """Make it a certificate, which the daemons of one directory trust."""
        write_certificate(self._folder / "private", self.end)
        certificate = self._folder / "private" / f"{self.end}.pem"
        for end in _OTHER:
            trusted = self.directory / f"{end}.d/x509ca"
            trusted.mkdir(parents=True, exist_ok=True)
            (trusted / certificate.name).write_bytes(certificate.read_bytes())
        certificate.unlink()

    def close(self) -> None:
        """Kill it."""
        with self.process:
            self.process.kill()

    def log(self) -> str:
        return self.log_path.read_text()
