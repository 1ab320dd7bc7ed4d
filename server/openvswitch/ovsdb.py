"""A connection to one switch's OVSDB that waits until ovs-vswitchd has applied what was written.

``ovsdbapp`` does the work; this module adds several databases at once (ovsdbapp keeps one connection per class),
waiting for ``cur_cfg`` as an event, and errors that are raised rather than logged.
"""

import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import ovs.stream
from ovsdbapp import exceptions as ovsdbapp_errors
from ovsdbapp.backend.ovs_idl import connection, idlutils, transaction
from ovsdbapp.schema.open_vswitch import impl_idl

from server.config import TlsConfig
from server.errors import DatabaseRefusedError, DatabaseUnreachableError, SwitchNotApplyingError
from server.openvswitch.schema import OPEN_VSWITCH, schema

Row = Any
Command = Any


class SwitchDatabase:
    """The database of one switch.

    Thread safety: one thread at a time. A background thread keeps the copy of the database current; rows are read
    under ``lock``.

    Args:
        switch: the switch's name, for errors.
        remote: ``unix:PATH``, ``tcp:HOST:PORT`` or ``ssl:HOST:PORT``.
        timeout_s: time limit in seconds for connecting, and for applying a change.
        tls: PEM files, for ``ssl:``. The ovs library keeps them for the whole process.
        ports: names; only these ports and their interfaces are read, so that connecting takes the same time however
            many others there are. None: all.

    Raises:
        DatabaseUnreachableError: nothing answers at ``remote``.
    """

    def __init__(
        self,
        switch: str,
        remote: str,
        timeout_s: float = 10.0,
        tls: TlsConfig | None = None,
        ports: Collection[str] | None = None,
    ) -> None:
        self.switch = switch
        self.remote = remote
        self._timeout_s = timeout_s
        self._probe(tls)
        idl = _NotifyingIdl(remote, schema())
        try:
            if ports is not None:
                for table in ("Port", "Interface"):  # `add_port` and plumbing give both the same name
                    idl.cond_change(table, [["name", "==", name] for name in ports])
            self._connection = connection.Connection(idl, timeout_s)
            idl.changed = threading.Condition(self._connection.lock)
            self.api = _Api(self._connection)
            self._connection.start()
        except Exception as error:  # ovs and ovsdbapp raise it for any answer of the server
            idl.close()
            is_late = isinstance(error, ovsdbapp_errors.TimeoutException | TimeoutError)  # the former has no text
            raise self._unreachable(f"no answer within {timeout_s:g} s" if is_late else str(error)) from error
        self._changed = idl.changed
        self._ensure_root_row()

    def close(self) -> None:
        """Close the connection; may be called twice. Rows are not valid any more."""
        if not self._connection.stop(timeout=self._timeout_s):
            return  # its thread still reads the tables
        # Tables and rows refer to each other. Without this, each connection would leave a thousand objects and more to
        # garbage collection, which stops all threads.
        idl = self._connection.idl
        for table in [*idl.tables.values(), *(idl.server_tables or {}).values()]:
            vars(table).clear()

    @property
    def lock(self) -> threading.RLock:
        """Return the lock for reading rows."""
        return self._connection.lock

    def rows(self, table: str) -> list[Row]:
        """Return all rows of ``table``; valid until the caller releases ``lock``."""
        return list(self.api.tables[table].rows.values())

    def row(self, table: str, name: str) -> Row | None:
        """Return the row of ``table`` with this value of the column ``name``."""
        return idlutils.row_by_value(self.api.idl, table, "name", name, None)

    def commit(self, commands: Sequence[Command], *, apply: bool = True) -> None:
        """Write ``commands`` (made by ``api``) in one transaction and wait until ovs-vswitchd has applied it.

        Raises:
            DatabaseRefusedError: the database rejected it; nothing was changed.
            DatabaseUnreachableError: the connection broke.
            SwitchNotApplyingError: it is in the database, but ovs-vswitchd did not apply it in time.
        """
        if not commands:
            return
        commit = _Commit(self.api, self._connection, bump=apply)
        for command in commands:
            commit.add(command)
        try:
            commit.commit()
        except (ovsdbapp_errors.TimeoutException, TimeoutError) as error:
            raise self._unreachable(f"no answer within {self._timeout_s:g} s") from error
        except Exception as error:  # ovsdbapp raises the database's refusal as a plain RuntimeError
            raise DatabaseRefusedError(f"switch {self.switch}: {self.remote} refused a change: {error}") from error
        if apply:
            self.await_applied(commit.next_cfg)

    def wait_for(self, holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until ``holds()``, which may read rows, is true; return False after the time limit."""
        with self._changed:
            return self._changed.wait_for(holds, self._timeout_s if timeout_s is None else timeout_s)

    def await_applied(self, next_cfg: int = 0) -> None:
        """Wait until ovs-vswitchd has applied everything up to ``next_cfg`` and the database's present one.

        Raises:
            SwitchNotApplyingError: the time limit expired.
        """

        def applied() -> bool:
            # While a connection is lost there are no rows.
            return any(root.cur_cfg >= max(next_cfg, root.next_cfg) for root in self.rows(OPEN_VSWITCH))

        if not self.wait_for(applied):
            raise SwitchNotApplyingError(
                f"switch {self.switch}: ovs-vswitchd did not apply a change within {self._timeout_s:g} s. "
                f"The change stays in the database ({self.remote}) and takes effect once ovs-vswitchd runs with it."
            )

    def _probe(self, tls: TlsConfig | None) -> None:
        """Connect once by hand, because ovsdbapp would wait without limit or reason."""
        kind, _, rest = self.remote.partition(":")
        try:
            if kind == "unix":
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                    probe.settimeout(self._timeout_s)
                    probe.connect(rest)
            else:
                host, _, port = rest.rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), self._timeout_s).close()
        except OSError as error:
            raise self._unreachable(error.strerror or str(error)) from error
        if kind == "ssl":
            if tls is None:
                raise self._unreachable("ssl: requires the PEM files of [oneswitchd.tls]")
            ovs.stream.Stream.ssl_set_private_key_file(tls.private_key)
            ovs.stream.Stream.ssl_set_certificate_file(tls.certificate)
            ovs.stream.Stream.ssl_set_ca_cert_file(tls.ca_certificate)

    def _unreachable(self, why: str) -> DatabaseUnreachableError:
        hint = "is ovsdb-server running there, and may this user connect?"
        return DatabaseUnreachableError(f"switch {self.switch}: no database at {self.remote}: {why}; {hint}")

    def _ensure_root_row(self) -> None:
        """Create the root row, as ``ovs-vsctl init`` does: a database straight from ovsdb-tool lacks it."""
        with self.lock:
            empty = not self.rows(OPEN_VSWITCH)
        if empty:
            self.commit([self.api.db_create(OPEN_VSWITCH)], apply=False)


class _NotifyingIdl(connection.OvsdbIdl):
    """Wakes threads that wait for a change. ``notify`` runs with the connection's lock held, as ``changed`` needs."""

    changed: threading.Condition | None = None

    def send_request(self, request: Any) -> Any:
        """Leave the schemas, 18 kB that nothing reads, out of the request about the server's databases."""
        if request.method == "monitor_cond" and request.params[0] == "_Server":
            for monitor in request.params[2]["Database"]:
                monitor["columns"].remove("schema")
        return super().send_request(request)

    def notify(self, event: str, row: Row, updates: Row | None = None) -> None:  # noqa: ARG002
        if self.changed is not None:
            with self.changed:
                self.changed.notify_all()


class _Api(impl_idl.OvsdbIdl):
    """ovsdbapp's API bound to its own connection: its base class shares the first one among all instances."""

    def __init__(self, own: connection.Connection) -> None:
        self._own = own
        super().__init__(own, start=False)

    @property
    def ovsdb_connection(self) -> Any:
        return self._own

    @ovsdb_connection.setter
    def ovsdb_connection(self, connection: Any) -> None:
        pass


class _Commit(transaction.Transaction):
    """Remembers the ``next_cfg`` that it wrote; the committing thread waits for it."""

    def __init__(self, api: _Api, own: connection.Connection, *, bump: bool) -> None:
        super().__init__(api, own, check_error=True, log_errors=False)
        self._bump = bump
        self.next_cfg = 0

    def pre_commit(self, txn: Any) -> None:
        txn.expected_ifaces = set()
        if self._bump:
            self.api._ovs.increment("next_cfg")

    def post_commit(self, txn: Any) -> None:
        super().post_commit(txn)
        if self._bump:
            self.next_cfg = txn.get_increment_new_value()
