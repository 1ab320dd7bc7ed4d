"""Processes on another machine, such as a smart NIC, by the program ``ssh``: it needs no agent there.

The machine needs ``sh``, ``flock`` and ``setsid`` (util-linux or busybox), the kinds' programs, and non-interactive
login for this agent's key. One connection is kept and shared (OpenSSH's ControlMaster); control sockets are forwarded
over it, so file descriptors cannot pass: state is copied. oneswitchd's offload socket is forwarded the other way, to a
socket of each process.
"""

import base64
import contextlib
import logging
import shlex
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from nfagent.config import SshConfig
from nfagent.errors import LaunchError
from nfagent.launch import CONFIG_WORD, Examined, Places, Process, Task, logs
from nfagent.launch.shell import become_script
from nfagent.reasons import AT_ONCE

_log = logging.getLogger(__name__)

_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": "5",
    "ServerAliveInterval": "5",
    "ControlMaster": "auto",
    "ControlPersist": "600",
    "StreamLocalBindUnlink": "yes",
}
_CALL_S = 20.0  # ssh drops a hung connection after 15 s
_ANSWER_S = 1.0
_FAILED = 255  # ssh's own exit status; any other is the command's
_LAST_WORDS = 600

# The same lock as on this machine (nfagent.launch.local): the process with descriptor 9 open owns the key.
_START = """
umask 077; mkdir -p {directory}; cd {directory}
exec 9>>{key}.lock
flock -n 9 || {{ echo locked >&2; exit 1; }}
printf %s {config} >{key}.json
rm -f {key}.sock; [ ! -e {key}.log ] || mv -f {key}.log {key}.log.1
: >{key}.lock
{variables} setsid sh -c {become} {incarnation} {command} </dev/null >>{key}.log 2>&1 &
"""
_FIND = """
cd {directory} 2>/dev/null && [ -e {key}.lock ] || exit 0
tries=100
while [ $tries -gt 0 ] && ! flock -n {key}.lock true; do
    if read -r pid incarnation <{key}.lock; then
        set -- $(sed 's/.*) //' /proc/$pid/stat 2>/dev/null)
        [ "${{1:-Z}}" = Z ] || echo "$pid ${{20}} $incarnation"
        exit 0
    fi
    tries=$((tries - 1)); sleep 0.05
done
"""
_KILL = """
cd {directory} 2>/dev/null && [ -e {key}.lock ] || exit 0
flock -n {key}.lock true && exit 0
read -r pid incarnation <{key}.lock || exit 0
[ "$incarnation" != {incarnation} ] || kill -s KILL -- -$pid 2>/dev/null || true
"""
_STOP = """
cd {directory} 2>/dev/null && [ -e {key}.lock ] || exit 0
is_held() {{ ! flock -n {key}.lock true; }}
wait_free() {{ tries=$1; while [ $tries -gt 0 ] && is_held; do tries=$((tries - 1)); sleep 0.1; done; }}
if is_held && read -r pid incarnation <{key}.lock; then
    kill -s TERM -- -$pid 2>/dev/null
    wait_free {grace}
    is_held && kill -s KILL -- -$pid 2>/dev/null
fi
wait_free 50
is_held && {{ echo "another process holds {key}.lock"; exit 1; }} >&2
rm -f {key}.lock {key}.json {key}.sock {key}.rules
"""


_TEND = """
cd {directory} 2>/dev/null || exit 0
for log in *.log; do
    [ -f "$log" ] && [ "$(wc -c <"$log")" -gt {most} ] || continue
    umask 077; tail -c {kept} "$log" >"$log.1"; : >"$log"
done
ls -1 | grep -e '[.]log$' -e '[.]log[.]1$' || true
"""


# Prints the file's number and the offset, and then the output, in base64: it may be no text.
_READ = """
cd {directory} 2>/dev/null && [ -e {key}{which} ] || exit 0
set -- $(stat -c '%i %s' {key}{which})
if [ {file} = - ]; then
    begin=$(($2 > {most} ? $2 - {most} : 0))
elif [ {file} = "$1" ] && [ {offset} -le "$2" ]; then
    begin={offset}
else
    begin=0
fi
echo "$1 $begin"
tail -c +$((begin + 1)) {key}{which} | head -c {most} | base64
"""


# Prints the file's path and the command's exit status, and then what it said.
_EXAMINE = """
umask 077; mkdir -p {directory}
file={directory}/check.$$.json
printf %s {config} >"$file"
said=$({command} 2>&1 >/dev/null); echo "$file $?"; printf '%s\\n' "$said"
rm -f "$file"
"""


class SshLauncher:
    """See `nfagent.launch.Launcher`.

    Args:
        location: name for messages and the connection's socket.
        config: the machine's configuration.
        runtime: directory of forwarded sockets on this machine.
        offload: path of oneswitchd's offload socket on this machine; None: it has none.
    """

    def __init__(self, location: str, config: SshConfig, runtime: Path, offload: str | None = None) -> None:
        runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._location = location
        self._config = config
        self._runtime = runtime
        self._offload = offload
        self._forwarding = threading.Lock()
        shared = {**_OPTIONS, "ControlPath": str(runtime / f"{location}.ssh")}
        options = [word for name, value in shared.items() for word in ("-o", f"{name}={value}")]
        self._ssh = ["ssh", *options, *config.options]

    def places(self, key: str, interfaces: tuple[str, ...]) -> Places:
        offload = None if self._offload is None else self._remote_rules(key)
        return Places(f"{self._config.directory}/{key}.json", self._remote_socket(key), interfaces, offload)

    def control_path(self, key: str) -> Path:
        path = self._runtime / f"{key}.sock"
        with self._forwarding:
            if not _answers(path):
                path.unlink(missing_ok=True)
                self._sh("true")  # establish the shared connection
                self._command("-O", "forward", "-L", f"{path}:{self._remote_socket(key)}", self._config.host)
                self._forward_rules(key)
        return path

    def _forward_rules(self, key: str) -> None:
        if self._offload is None:
            return
        try:
            # sshd does not replace the socket of an earlier connection.
            self._script("mkdir -p {directory}; rm -f {directory}/{key}.rules", key)
            self._command("-O", "forward", "-R", f"{self._remote_rules(key)}:{self._offload}", self._config.host)
        except LaunchError as error:
            _log.warning("%s serves without offload: %s", key, error)

    def start(self, task: Task) -> Process:
        if task.descriptors:
            raise LaunchError(f"{task.key}: cannot pass open files to {self._config.host}")
        found = self.find(task.key)
        if found is not None and found.incarnation == task.incarnation:
            return found
        self.stop(task.key, 0.0)
        self._script(
            _START,
            task.key,
            config=shlex.quote(task.config),
            variables=" ".join(f"{name}={shlex.quote(value)}" for name, value in task.variables.items()),
            become=shlex.quote(become_script(task.enter)),
            incarnation=task.incarnation,
            command=shlex.join([*task.enter, *task.command]),
        )
        found = self.find(task.key)
        if found is None:
            raise LaunchError(f"{task.key}: {AT_ONCE}; {self.last_words(task.key)}")
        return found

    def find(self, key: str) -> Process | None:
        words = self._script(_FIND, key).split()
        return Process(int(words[0]), int(words[1]), words[2]) if len(words) == 3 else None

    def stop(self, key: str, grace_s: float) -> None:
        self._script(_STOP, key, grace=str(round(grace_s * 10)))
        path = self._runtime / f"{key}.sock"
        if path.exists():
            with contextlib.suppress(LaunchError):  # it ended with the connection
                self._command("-O", "cancel", "-L", f"{path}:{self._remote_socket(key)}", self._config.host)
                if self._offload is not None:
                    self._command("-O", "cancel", "-R", f"{self._remote_rules(key)}:{self._offload}", self._config.host)
            path.unlink(missing_ok=True)

    def kill(self, key: str, incarnation: str) -> None:
        self._script(_KILL, key, incarnation=incarnation)

    def all_keys(self) -> list[str]:
        names = self._sh(f"ls -1 {shlex.quote(self._config.directory)} 2>/dev/null || true").split()
        return sorted(name.removesuffix(".lock") for name in names if name.endswith(".lock"))

    def last_words(self, key: str) -> str:
        text = self._sh(
            f"tail -c {_LAST_WORDS} {shlex.quote(f'{self._config.directory}/{key}.log')} 2>/dev/null || true"
        )
        lines = " / ".join(text.strip().splitlines()[-3:])
        return f"it said: {lines}" if lines else "it said nothing"

    def read_log(self, key: str, after: logs.Position | None, most: int, *, older: bool = False) -> logs.Part | None:
        file, offset = ("-", "0") if after is None else (str(after.file), str(after.offset))
        which = logs.OLDER if older else logs.NEWER
        said = self._script(_READ, key, file=file, offset=offset, most=str(most), which=which)
        head, _, encoded = said.partition("\n")
        if not head:
            return None
        number, begin = map(int, head.split())
        output = base64.b64decode(encoded)
        return logs.Part(output, logs.Position(number, begin + len(output)))

    def tend_logs(self, kept: Callable[[str], bool]) -> None:
        directory, limits = shlex.quote(self._config.directory), {"most": logs.MOST, "kept": logs.KEPT}
        found = self._sh(_TEND.format(directory=directory, **limits)).split()
        gone = [name for name in found if not kept(logs.key_of(name))]
        if gone:
            running = set(self.all_keys())
            names = shlex.join(name for name in gone if logs.key_of(name) not in running)
            self._sh(f"cd {directory} && rm -f -- {names}")

    def ending(self, process: Process) -> str:  # noqa: ARG002
        return ""  # only its parent learns how it ended, and the parent has ended

    def call(self, enter: tuple[str, ...], command: list[str]) -> None:
        self._sh(shlex.join([*enter, *command]))

    def examine(self, enter: tuple[str, ...], command: tuple[str, ...], config: str) -> Examined:
        words = [shlex.join(enter), *('"$file"' if word == CONFIG_WORD else shlex.quote(word) for word in command)]
        answer = self._script(_EXAMINE, "", config=shlex.quote(config), command=" ".join(filter(None, words)))
        head, _, said = answer.partition("\n")
        file, _, status = head.rpartition(" ")
        return Examined(command, file, int(status), said)

    def output(self, command: list[str]) -> str:
        """Return a command's output on that machine.

        Raises:
            LaunchError: it failed, or the machine cannot be reached.
        """
        return self._sh(shlex.join(command))

    def own_pid(self, process: Process, enter: tuple[str, ...]) -> int:  # noqa: ARG002
        return process.pid

    def pidfd(self, process: Process) -> int | None:  # noqa: ARG002
        return None

    # ---- ssh

    def _remote_socket(self, key: str) -> str:
        return f"{self._config.directory}/{key}.sock"

    def _remote_rules(self, key: str) -> str:
        return f"{self._config.directory}/{key}.rules"

    def _script(self, template: str, key: str, **values: str) -> str:
        return self._sh(template.format(directory=shlex.quote(self._config.directory), key=key, **values))

    def _sh(self, script: str) -> str:
        return self._command(self._config.host, "exec sh -s", script=script)

    def _command(self, *words: str, script: str = "") -> str:
        where = f"{self._location} (ssh {self._config.host})"
        try:
            done = subprocess.run(
                [*self._ssh, *words], input=script, capture_output=True, text=True, timeout=_CALL_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise LaunchError(f"{where}: {error}") from error
        if done.returncode == _FAILED:
            raise LaunchError(f"{where} cannot be reached: {done.stderr.strip()}")
        if done.returncode != 0:
            raise LaunchError(f"{where}: {done.stderr.strip() or f'exit status {done.returncode}'}")
        return done.stdout


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_S)  # a stopped ssh accepts no connection, and its queue may be full
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
