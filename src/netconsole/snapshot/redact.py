"""Replaces addresses, MACs, UUIDs and names of hosts, VMs, processes, devices and namespaces, also in free text.

A pseudonym is an HMAC of what it stands for: the same name has the same one in every snapshot that is redacted with the
same key, and nobody can try names without the key. What says nothing of a site stays: loopback and unspecified
addresses, the names of kernel threads, the device ``lo``.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from netconsole.base.fact_keys import key as fact_key
from netconsole.base.fact_keys import parts
from netconsole.base.figure import safe
from netconsole.probes.manifest import Manifest
from netconsole.probes.meaning import BY_NAME
from netconsole.snapshot.document import Snapshot
from netconsole_collector.names.netns_labels import is_namespace_inode
from netconsole_collector.sources.vm.thread_waits import IO_THREAD

_DIGITS = 8
_MAX_NAMES = 20_000
_MAX_CACHE = 200_000

_PROCESS_LABELS = frozenset({"process", "comm", "task", "thread", "worker", "command"})
_PROCESS_KINDS = ("process", "socket")
_VM_LABELS = frozenset({"vm"})
_DEVICE_LABELS = frozenset(name for name, meaning in BY_NAME.items() if meaning == "device")
_NETNS_LABELS = frozenset({"netns"})
_HOST_LABELS = ("host", "hostname", "system_id")
_OVS_DEVICES = ("bridge", "port", "interface")
_DEVICE_FACTS = ("master", "bridge", "tap", "mapped")
"""Properties whose value is the name of a device."""
_FILE_FACTS = ("file",)
"""Of disks: paths, which people name after who uses them."""
_FIXED = frozenset({
    "schema", "level", "kind", "role", "by", "word", "verdict", "cause", "unit", "probe", "name", "stage",
    "probes", "hidden_by", "began", "ended", "not_measured_since", "created", "came",
})  # fmt: skip
"""Keys of incidents, of the governor's actions, of balances, places and pings whose values are words of netconsole. Not
``action``: that of an escalation has the device and the addresses to which it narrowed."""
_ANSWERED_DEVICES = (
    "out_device", "back_device", "most_device", "own_device", "in_port", "peer", "bridge", "adds", "below",
)  # fmt: skip
_ANSWERED_RULES = ("rule", "filter", "xdp", "table", "chain", "legacy_table", "legacy_chain", "match")
"""Of what a host answered about a cause: names, and texts that people wrote."""
_USUAL_CHAINS = frozenset({
    "filter", "nat", "raw", "mangle", "main", "default", "local", "input", "output", "forward", "prerouting",
    "postrouting", "everything",
})  # fmt: skip
_PROCESS = re.compile(r"(.*?)(?:/\d+| \(\d+\))?$", re.DOTALL)
_KERNEL_THREADS = re.compile(
    r"(vhost-\d+|ksoftirqd|kworker|swapper|migration|napi|irq|rcu\w*|kthreadd|idle)\b.*|\?|unknown", re.DOTALL
)
_NO_NAMES = frozenset({"", "-", "–", "unnamed", "localhost", "none", "null"})
_NO_DEVICES = frozenset({"lo", "all", "default", "?", "*"})
_NO_NAMESPACES = frozenset({"host", "other", "?"})

_USUAL_WORDS = frozenset({
    "an", "and", "are", "as", "at", "be", "by", "for", "from", "if", "in", "is", "it", "its", "no", "not", "of", "on",
    "one", "or", "out", "per", "so", "than", "that", "the", "then", "they", "this", "to", "up", "was", "were", "with",
})  # fmt: skip
_BEFORE_NAMES = ("netns ", "netns=", "exec ", "device ", "device=", "dev ", "peer=", "vm=", "VM ", "process=")
"""What stands before a name that may also be a word or a number: only there, and alone, it is taken for the name."""

_UUID = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f])")
_MAC = re.compile(
    r"(?<![0-9A-Fa-f])(?<![0-9A-Fa-f]:)[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4,18}"
    r"(?![0-9A-Fa-f]|:[0-9A-Fa-f])"
)
_IPV4 = re.compile(r"(?<![0-9])(?<![0-9]\.)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]|\.[0-9])")
_MAYBE_IPV6 = re.compile(r"[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
"""Any text with two colons. The ipaddress library decides what in it is an address."""
_MAX_IPV6 = 45
_WORD = re.compile(r"\w")
PSEUDONYM = re.compile(
    rf"(?<![^\W_])(?:host|vm|process|device|netns|rule|group|file|uuid|mac|ip4|ip6)-[0-9a-f]{{{_DIGITS}}}(?![^\W_])"
)
"""What stands for a name or an address in a redacted snapshot."""


LEFT_OUT = "left out: an output may name what no pseudonym is known for"


class _SecretLabels(NamedTuple):
    """The labels that name processes, VMs, devices and network namespaces."""

    processes: frozenset[str] = _PROCESS_LABELS
    vms: frozenset[str] = _VM_LABELS
    devices: frozenset[str] = _DEVICE_LABELS
    namespaces: frozenset[str] = _NETNS_LABELS

    @classmethod
    def union(cls, *others: _SecretLabels) -> _SecretLabels:
        """The usual labels, and those of ``others``."""
        return cls(*(frozenset().union(*kind) for kind in zip(cls(), *others, strict=True)))


def _secret_labels(manifest: Manifest) -> _SecretLabels:
    """The labels that name something by a probe's manifest, with the fields of its events and examples."""
    tables = manifest.tables.values()
    keys = [*(one.key for one in tables), *(one.key for one in manifest.histograms.values())]
    packets = [*(one.example for one in tables), *manifest.events.values()]
    columns = [column for key in (*keys, *packets) for column in key]
    return _SecretLabels(
        frozenset(one.name for one in columns if one.shown_as in _PROCESS_KINDS or one.stands_for == "process"),
        frozenset(one.name for one in columns if one.shown_as == "vm"),
        frozenset(one.name for one in columns if one.stands_for == "device" or one.shown_as == "tap"),
        frozenset(one.name for one in columns if one.stands_for == "netns"),
    )


class Redactor:
    """Redacts with one key. Names are only redacted after they were learned (:meth:`learn`)."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._names: dict[str, str] = {}
        self._places: dict[str, str] = {}
        """Names of devices and network namespaces, with what they are."""
        self._pattern: re.Pattern[str] | None = None
        self._cache: dict[str, str] = {}

    def snapshot(self, snapshot: Snapshot, manifests: Mapping[str, Manifest] | None = None) -> Snapshot:
        """The redacted snapshot. ``manifests`` say which labels of a probe name something."""
        self.learn(snapshot, manifests)
        document = msgspec.to_builtins(snapshot)
        document["note"] = self._any(document["note"])
        document["host"] = self._any(document["host"])
        document["cost"] = self._any(document["cost"])
        document["profile"]["scope"] = self._any(document["profile"]["scope"])
        for name in ("governor", "incidents", "ping", "balance", "drop_places", "mirror"):
            document[name] = self._record(document[name])
        if document["mirror"] is not None:  # its verdict is a sentence, which names devices and processes
            document["mirror"]["verdict"] = self.text(document["mirror"]["verdict"])
        for one in document["commands"] or ():
            one["command"] = self.text(one["command"])
            one["why"] = self._any(one["why"]) if one["output"] is None else LEFT_OUT
            one["output"] = None
        for probe in document["probes"].values():
            for event in probe.get("events", ()):
                event.pop("packet", None)  # its bytes have addresses, names and what was said
            for name in ("why", "attach", "filters", "tables", "events", "row_examples", "cost"):
                if name in probe:
                    probe[name] = self._any(probe[name])
            for histogram in probe.get("histograms", {}).values():
                for part in (histogram, *histogram.get("by", ())):
                    part["labels"] = self._any(part.get("labels", {}))
        document["facts"] = {
            self._fact_key(name): {field: self._any(value) for field, value in fact.items()}
            for name, fact in document["facts"].items()
        }
        return msgspec.convert(document, Snapshot)

    def learn(self, snapshot: Snapshot, manifests: Mapping[str, Manifest] | None = None) -> None:
        """Learns the names in a snapshot: its host, VMs, processes, devices and network namespaces."""
        secret = {name: _secret_labels(manifest) for name, manifest in (manifests or {}).items()}
        anywhere = _SecretLabels.union(*(secret[name] for name in snapshot.probes if name in secret))
        self._learn_labels(snapshot.profile.scope, anywhere)
        host = snapshot.host.name
        self._add("host", (host, host.partition(".")[0], host.partition(".")[2]))
        for fact, data in snapshot.facts.items():
            self._learn_fact(parts(fact), data.value)
        for one in snapshot.ping.captures if snapshot.ping is not None else ():
            self._add("vm" if one.role.endswith("vm") else "host", (one.host,))
        for incident in snapshot.incidents or ():
            packet = incident.example.fields if incident.example is not None else {}
            for labels in (incident.where, packet, *(proof.labels for proof in incident.evidence)):
                self._learn_labels(labels, anywhere)
            self._learn_answer(incident.answer)
        for stage in snapshot.balance or ():
            self._learn_labels({"device": stage.device, "netns": stage.netns}, anywhere)
        for name, probe in snapshot.probes.items():
            own = _SecretLabels.union(*([secret[name]] if name in secret else []))
            packets = [one.fields for rows in probe.row_examples.values() for one in rows if one is not None]
            for rows in (*probe.tables.values(), probe.events, packets, [probe.filters or {}]):
                for row in rows:
                    self._learn_labels(row, own)
            for histogram in probe.histograms.values():
                for part in (histogram, *histogram.by):
                    self._learn_labels(part.labels, own)
        for place, kind in self._places.items():  # last: a device may have the name of a VM or process
            self._add(kind, (place,))
        self._cache.clear()
        # The longest name first: a name may be a part of another name.
        names = sorted(self._names, key=len, reverse=True)
        whole = ("device-", "netns-")
        patterns = [_bounded(name, self._names[name].startswith(whole)) for name in names]
        self._pattern = re.compile("|".join(patterns), re.IGNORECASE) if names else None

    def text(self, text: str) -> str:
        """The text with pseudonyms for all addresses, and for the names that were learned."""
        known = self._cache.get(text)
        if known is None:
            known = self._addresses(text)
            if self._pattern is not None:
                known = self._pattern.sub(self._named, known)
            if len(self._cache) < _MAX_CACHE:
                self._cache[text] = known
        return known

    def _addresses(self, text: str) -> str:
        """The text with pseudonyms for addresses alone."""
        known = _UUID.sub(lambda found: self._pseudonym("uuid", found[0]), text)
        known = _MAC.sub(self._mac, known)
        known = _MAYBE_IPV6.sub(self._within, known)
        return _IPV4.sub(lambda found: self._address(found[0]) or found[0], known)

    def _named(self, found: re.Match[str]) -> str:
        """The pseudonym of a name, in any case. Some letters are equal then, but not when lowered (U+017F is an s)."""
        pseudonym = self._names.get(found[0].lower())
        if pseudonym is None:
            same = (name for name in self._names if re.fullmatch(re.escape(name), found[0], re.IGNORECASE))
            pseudonym = self._names[next(same)]
        return pseudonym

    def _any(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {name: self._any(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._any(item) for item in value]
        return value

    def _record(self, value: Any) -> Any:
        """As :meth:`_any`, of a record of ours: its fixed words stay, also where something has the same name."""
        if isinstance(value, dict):
            return {
                name: item
                if name in _FIXED
                else (self._any if name in ("labels", "where", "fields", "answer") else self._record)(item)
                for name, item in value.items()
            }
        return [self._record(item) for item in value] if isinstance(value, list) else self._any(value)

    def _fact_key(self, name: str) -> str:
        area, *rest = parts(name)
        return fact_key(area, *(self.text(part) for part in rest))

    def _learn_fact(self, where: list[str], value: object) -> None:
        area, *rest = where
        if area == "vm" and len(rest) > 1:
            self._add("vm", (rest[0], rest[0].partition(" #")[0]))
        elif (area in ("nic", "tc") and len(rest) > 1) or (area == "ovs" and len(rest) > 2 and rest[0] in _OVS_DEVICES):
            self._learn_device(rest[0] if area != "ovs" else rest[1])
        elif area == "block" and len(rest) > 1:
            self._learn_device(rest[0])
        elif area == "namespace" and rest:
            self._learn_namespace(rest[0])
            if rest[1:2] == ["sysctl"]:
                self._learn_device(rest[2].split(".conf.")[-1].rpartition(".")[0])
        if isinstance(value, str):
            if where[-1] in _HOST_LABELS:
                self._add("host", (value,))
            elif area == "netns":
                self._learn_process(value) if where[-1] == "process" else self._learn_namespace(value)
            elif where[-1] in _FILE_FACTS and area in ("block", "vm"):
                self._add("file", (value,))
            elif where[-1] in _DEVICE_FACTS and area in ("nic", "ovs", "vm", "block"):
                self._learn_device(value)

    def _learn_labels(self, row: Mapping[str, Any], labels: _SecretLabels) -> None:
        # A recording has no facts that would name its VMs and devices: its rows do.
        for names, learn in (
            (labels.vms, self._learn_vm),
            (labels.devices, self._learn_device),
            (labels.namespaces, self._learn_namespace),
        ):
            for label in names:
                if isinstance(value := row.get(label), str):
                    learn(value)
        for label in labels.processes:
            value = row.get(label)
            if isinstance(value, str):
                self._learn_process(value)
        if isinstance(role := row.get("role"), str):
            self._learn_role(role)

    def _learn_answer(self, answer: Mapping[str, Any]) -> None:
        if isinstance(process := answer.get("process"), str):
            self._learn_process(process)
        if isinstance(machine := answer.get("rival_vm"), str):
            self._learn_vm(machine)
            self._learn_role(str(answer.get("rival")).removesuffix(f" of {machine}"))
        if isinstance(group := answer.get("group"), str) and len(group) > 1:  # it may have the name of a VM, escaped
            self._add("group", (group,))
        for name in _ANSWERED_DEVICES:
            if isinstance(device := answer.get(name), str):
                self._learn_device(device)
        for name in _ANSWERED_RULES:
            if isinstance(text := answer.get(name), str) and len(text) > 3 and text.lower() not in _USUAL_CHAINS:
                self._add("rule", (text, self._addresses(text)))

    def _learn_vm(self, name: str) -> None:
        self._add("vm", (name,))

    def _learn_device(self, name: str) -> None:
        if name not in _NO_DEVICES and not name.isdecimal():
            self._places.setdefault(name, "device")

    def _learn_namespace(self, name: str) -> None:
        """Learns a name. A namespace without one is told by its inode, a number of this boot."""
        if name not in _NO_NAMESPACES and not is_namespace_inode(name):
            self._places.setdefault(name, "netns")

    def _learn_process(self, value: str) -> None:
        named = _PROCESS.match(value)
        name = named[1] if named else value
        if not _KERNEL_THREADS.fullmatch(name):
            self._add("process", (name,))

    def _learn_role(self, role: str) -> None:
        """An I/O thread of QEMU has the id that its configuration gives it."""
        if role.startswith(IO_THREAD) and (name := role[len(IO_THREAD) :]):
            self._add("process", (name,))

    def _add(self, kind: str, names: Iterable[str]) -> None:
        for name in names:
            for written in dict.fromkeys((name, safe(name, len(name)))):  # sentences have it as printable text
                known = written.lower()
                if known not in _NO_NAMES and known not in self._names and len(self._names) < _MAX_NAMES:
                    self._names[known] = self._pseudonym(kind, name)

    def _mac(self, found: re.Match[str]) -> str:
        digits = re.sub(r"[:-]", "", found[0])
        return found[0] if not digits.strip("0") or not digits.lower().strip("f") else self._pseudonym("mac", digits)

    def _within(self, found: re.Match[str]) -> str:
        """Replaces the IPv6 addresses in a run of digits and colons. ``std::string`` and 21:04:10 have none."""
        run, text = found[0], found.string
        start, done = 0, ""
        while start < len(run):
            free = start or not found.start() or not _WORD.match(text[found.start() - 1])
            for end in range(min(len(run), start + _MAX_IPV6), start + 1, -1) if free else ():
                follows = run[end : end + 1] or text[found.end() : found.end() + 1]
                if ":" not in run[start:end] or (follows and _WORD.match(follows)):
                    continue
                said = self._address(run[start:end])
                if said is not None:
                    done += said
                    start = end
                    break
            else:
                step = run.find(":", start) + 1 or len(run)
                done += run[start:step]
                start = step
        return done

    def _address(self, text: str) -> str | None:
        """The pseudonym of an address. Loopback and unspecified addresses stay. None when it is not an address."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        address = mapped or address
        if address.is_loopback or address.is_unspecified or str(address) == "255.255.255.255":
            return text
        return self._pseudonym(f"ip{address.version}", str(address))

    def _pseudonym(self, kind: str, name: str) -> str:
        digest = hmac.new(self._key, f"{kind}\0{name.lower()}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:_DIGITS]}"


def is_redacted(snapshot: Snapshot) -> bool:
    """Whether its names are pseudonyms: that of its host, or those of its devices (a host may be called localhost)."""
    devices = (parts(name)[1] for name in snapshot.facts if name.startswith("nic/device-"))
    return any(PSEUDONYM.fullmatch(name) for name in (snapshot.host.name, *devices))


def _bounded(name: str, is_word: bool) -> str:
    """The pattern for a name. It matches whole words only, when ``is_word`` or it may be a part of other words."""
    distinctive = len(name) >= 4 and not name.isalpha() and not is_word
    quoted = re.escape(name)
    if len(name) == 1 or name.isdecimal() or name in _USUAL_WORDS:
        before = "|".join(f"(?<={word})" for word in _BEFORE_NAMES)
        return rf"(?:{before}){quoted}(?![^\W_])|^{quoted}(?=$|: | \(netns )"
    return quoted if distinctive else rf"(?<![^\W_]){quoted}(?![^\W_])"
