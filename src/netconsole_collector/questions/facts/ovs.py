"""Facts of Open vSwitch from its database: version, other_config, bridges with datapath, settings of every port."""

import errno
import json
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from netconsole_collector.names.fact_keys import key
from netconsole_collector.primitives.here import HERE, Here
from netconsole_collector.questions.facts.reading import Facts

SOCKETS = ("/run/openvswitch/db.sock", "/var/run/openvswitch/db.sock", "/usr/local/var/run/openvswitch/db.sock")
TIMEOUT_MS = 1000
_MAX_PORTS = 5000
_TABLES = {
    "Open_vSwitch": ["ovs_version", "dpdk_initialized", "other_config", "system_type", "system_version"],
    "Bridge": [
        "_uuid", "name", "datapath_type", "fail_mode", "stp_enable", "rstp_enable",
        "mcast_snooping_enable", "other_config", "ports", "protocols", "mirrors",
    ],
    "Port": [
        "_uuid", "name", "interfaces", "tag", "trunks", "vlan_mode", "bond_mode", "lacp",
        "bond_updelay", "other_config", "qos",
    ],
    "Interface": [
        "_uuid", "name", "type", "options", "other_config", "mtu_request", "ingress_policing_rate",
        "ingress_policing_burst", "ingress_policing_kpkts_rate",
    ],
}  # fmt: skip
_ID = "netconsole"
_NO_ANSWER = "the database server closed the connection or sent no JSON-RPC"
_SKIPPED = ("_uuid", "name", "ports", "interfaces")


class OvsError(Exception):
    """The database did not answer; the message says why in a few words."""


def collect(facts: Facts) -> None:
    """Add the facts under ``ovs/``. Where no Open vSwitch runs: one unknown fact."""
    path = next((path for path in SOCKETS if facts.exists(path)), None)
    if path is None:
        facts.unknown("ovs", SOCKETS[0], "no Open vSwitch database runs here")
        return
    try:
        tables = select(path, host=facts.host)
    except OvsError as error:
        facts.unknown("ovs", path, str(error))
        return
    for row in tables["Open_vSwitch"]:
        _row(facts, ("ovs",), row)
    interfaces = {row["_uuid"][1]: row for row in tables["Interface"]}
    ports = {row["_uuid"][1]: row for row in tables["Port"]}
    placed = 0
    for bridge in tables["Bridge"]:
        name = bridge["name"]
        _row(facts, ("ovs", "bridge", name), bridge)
        for port in _members(bridge["ports"], ports):
            placed += 1
            if placed > _MAX_PORTS:
                facts.unknown("ovs/more", path, f"only the first {_MAX_PORTS} ports are listed")
                return
            facts.put(key("ovs", "port", port["name"], "bridge"), name, "OVSDB Bridge.ports")
            _row(facts, ("ovs", "port", port["name"]), port)
            for interface in _members(port["interfaces"], interfaces):
                _row(facts, ("ovs", "interface", interface["name"]), interface)


def select(socket: str, timeout_ms: int = TIMEOUT_MS, host: Here = HERE) -> Dict[str, List[Dict[str, Any]]]:
    """The needed columns of four tables. Raises OvsError when the server is gone, silent, or sends invalid data."""
    operations = [
        {"op": "select", "table": table, "where": [], "columns": columns} for table, columns in _TABLES.items()
    ]
    result = _transact(host, socket, operations, timeout_ms)
    try:
        return {table: list(result[number]["rows"]) for number, table in enumerate(_TABLES)}
    except (LookupError, TypeError, ValueError):
        errors = [answer.get("details") or answer.get("error") for answer in result if isinstance(answer, dict)]
        raise OvsError(f"the database refused: {next(filter(None, errors), 'no rows')}") from None


def _transact(host: Here, socket: str, operations: Sequence[object], timeout_ms: int) -> List[Any]:
    """One transaction and its results, as JSON-RPC 1.0 (RFC 7047, section 4.1.3)."""
    request = {"method": "transact", "params": ["Open_vSwitch", *operations], "id": _ID}
    try:
        connection = host.connect(socket, timeout_ms / 1000)
    except OSError as error:
        raise OvsError(f"cannot connect: {errno.errorcode.get(error.errno or 0, error)}") from None
    try:
        answer = json.loads(connection.ask(json.dumps(request).encode(), timeout_ms / 1000).decode("utf-8"))
    except TimeoutError:
        raise OvsError(f"no answer within {timeout_ms} ms") from None
    except (OSError, ValueError):
        raise OvsError(_NO_ANSWER) from None
    finally:
        connection.close()
    if not isinstance(answer, dict) or "id" not in answer:
        raise OvsError(_NO_ANSWER)
    if answer["id"] != _ID:
        raise OvsError("the database's answer does not fit the question")
    result = answer.get("result")
    if not isinstance(result, list) or answer.get("error") is not None:
        raise OvsError("the database refused the request")
    return result


def _row(facts: Facts, where: Tuple[str, ...], row: Dict[str, Any]) -> None:
    for column, value in row.items():
        if column in _SKIPPED:
            continue
        kind, content = value if isinstance(value, list) and len(value) == 2 else (None, value)
        if kind == "map":
            for name, text in content:
                facts.put(key(*where, column, str(name)), str(text), f"OVSDB {column}")
        elif kind == "set":
            if content:
                facts.put(key(*where, column), sorted(_text(item) for item in content), f"OVSDB {column}")
        elif value not in ("", None):
            facts.put(key(*where, column), value if isinstance(value, (bool, int)) else _text(value), f"OVSDB {column}")


def _members(references: Any, rows: Dict[str, Dict[str, Any]]) -> Iterable[Dict[str, Any]]:
    """The rows that an OVSDB set of UUIDs (or a single one) names."""
    pairs = references[1] if references[0] == "set" else [references]
    return (rows[uuid] for _, uuid in pairs if uuid in rows)


def _text(value: Any) -> str:
    return str(value[1]) if isinstance(value, list) and len(value) == 2 else str(value)
