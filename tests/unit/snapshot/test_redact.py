"""Redaction: nothing that names a site is left anywhere, and what is the same stays the same."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netconsole.base.errors import BadInput
from netconsole.base.fact_keys import key
from netconsole.base.figure import safe
from netconsole.compare.compare import compare
from netconsole.probes.catalogue import shipped
from netconsole.report import of_comparison, of_snapshot, to_html, to_markdown, to_text
from netconsole.snapshot import redact_key
from netconsole.snapshot.document import Snapshot, encode
from netconsole.snapshot.redact import LEFT_OUT, Redactor
from tests.support import made_up

SECRETS = [
    "hv-017.dc3.example.com", "hv-017", "dc3.example.com",
    "web-07", "db/master", "customer-x", "tenant-42",
    "192.0.2.17", "2001:db8::17", "fe80::5054:ff:fe00:7", "203.0.113.9", "2001:DB8:0:0::18",
    "52:54:00:00:00:07", "52-54-00-AA-BB-CC",
    "4a3c1f9e-1111-4222-8333-000000000017",
    "billing-api", "nginx", "qemu-system-x86", "payments-db",
]  # fmt: skip
KEY = b"k" * 32


def secret_document(seed: int = 1) -> dict[str, Any]:
    """A snapshot with every secret in every kind of place, free text included."""
    document = made_up.document(seed, samples=30, drops_per_s=20)
    everything = " ".join(f"({secret}):{secret}, tap-{secret}-0 [{secret}]" for secret in SECRETS if ":" not in secret)
    everything += " ".join(f" from {secret} [{secret}]:53 lladdr {secret}, x" for secret in SECRETS if ":" in secret)
    document["host"]["name"] = "hv-017.dc3.example.com"
    document["host"]["boot_id"] = "4a3c1f9e-1111-4222-8333-000000000017"
    document["note"] = everything
    drops = document["probes"]["kernel_drops"]
    drops["filters"] = {
        "device": "customer-x",
        "address": "from:2001:db8::17,to:192.0.2.17",
        "mac": "52:54:00:00:00:07",
    }
    for number, secret in enumerate(SECRETS):
        drops["tables"]["drops"].append(
            {"reason": "NO_SOCKET", "device": secret, "location": everything, "count": number + 1, "class": "benign"}
        )
        document["facts"][key("nic", secret, "mtu")] = {"value": everything, "source": everything, "why": everything}
    drops["tables"]["sockets"] = [
        {
            "process": "nginx (712)",
            "address": "192.0.2.17",
            "peer": "::ffff:203.0.113.9",
            "vm": "tenant-42",
            "count": 3,
        },
        {"process": "billing-api/713", "address": "2001:db8::17", "peer": "2001:DB8:0:0::18", "count": 4},
        {"process": "qemu-system-x86", "address": "127.0.0.1", "peer": "::", "count": 5},
    ]
    drops["events"] = [{"name": "drop", "comm": "nginx", "source": "192.0.2.17:53", "stack": [everything]}]
    drops["events"][0]["packet"] = "1:60:c0000211"  # 192.0.2.17
    drops["why"] = everything
    drops["cost"] = {"x": everything}
    document["probes"]["tx_queue_latency"]["histograms"]["wait"]["by"][0]["labels"]["device"] = "tap-web-07"
    for name in ("web-07", "db/master", "customer-x"):
        document["facts"][key("vm", name, "net", 0, "tap")] = {"value": "vnet3", "source": "", "volatile": True}
    document["facts"]["netns/4026532017/process"] = {"value": "payments-db", "source": "", "volatile": True}
    # An escalation says there to which device or address it narrowed the probe.
    document["governor"] = [{"because": everything, "action": f"details of address=192.0.2.17 {everything}"}]
    document["mirror"] = {"verdict": everything, "stages": [{"stage": "socket", "where": everything}]}
    return document


def redacted(seed: int = 1, secret: bytes = KEY) -> Snapshot:
    """The same, redacted."""
    return Redactor(secret).snapshot(msgspec.convert(secret_document(seed), Snapshot))


def test_no_secret_is_left_in_any_format() -> None:
    snapshot = redacted()
    comparison = compare(snapshot, [redacted(2)])
    document, other = of_snapshot(snapshot), of_comparison(comparison)
    pages = [encode(snapshot).decode(), json.dumps(msgspec.to_builtins(comparison), ensure_ascii=False)]
    pages += [render(one) for render in (to_html, to_markdown, to_text) for one in (document, other)]
    for page in pages:
        for secret in [*SECRETS, "db%2Fmaster", "2001:db8", "example.com"]:
            assert secret.lower() not in page.lower(), secret


def test_what_says_nothing_of_a_site_stays() -> None:
    text = Redactor(KEY).text
    for harmless in ("127.0.0.1", "::1", "::", "0.0.0.0", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "21:04:10"):
        assert text(f"x {harmless} y") == f"x {harmless} y"
    for harmless in (
        "__udp4_lib_rcv+0x1b1",
        "0000:00:03.0",
        "6.1.0-56-amd64",
        "2026-11-20T21:00:00Z",
        "std::string",
        "a::string",
    ):
        assert text(harmless) == harmless
    snapshot = redacted()
    original = msgspec.convert(secret_document(), Snapshot)
    assert snapshot.probes["kernel_drops"].counters == original.probes["kernel_drops"].counters
    assert snapshot.probes["kernel_drops"].tables["sockets"][2]["address"] == "127.0.0.1"


def test_packets_are_left_out() -> None:
    """Their bytes have addresses, names and what was said."""
    assert "packet" not in redacted().probes["kernel_drops"].events[0]
    assert "packet" in msgspec.convert(secret_document(), Snapshot).probes["kernel_drops"].events[0]


def test_pseudonyms_are_stable_within_and_across_snapshots_and_depend_on_the_key() -> None:
    first, second, other = redacted(1), redacted(2), redacted(1, b"other key" * 4)
    assert first.host.name == second.host.name != other.host.name
    row = first.probes["kernel_drops"].tables["sockets"][0]
    assert str(row["process"]).startswith("process-")
    assert str(row["process"]).endswith(" (712)")
    assert first.probes["kernel_drops"].events[0]["comm"] == str(row["process"]).removesuffix(" (712)")
    assert row["address"] == second.probes["kernel_drops"].tables["sockets"][0]["address"]
    text = Redactor(KEY).text
    assert text("2001:db8::18") == text("2001:DB8:0:0::18"), "one address has one pseudonym, however it is written"
    assert text("::ffff:203.0.113.9") == text("203.0.113.9")
    assert text("52:54:00:aa:bb:cc") == text("52-54-00-AA-BB-CC")


def test_redacted_snapshots_compare_as_the_originals_do() -> None:
    originals = [msgspec.convert(secret_document(seed), Snapshot) for seed in range(4)]
    hidden = [Redactor(KEY).snapshot(one) for one in originals]
    plain, blind = compare(originals[0], originals[1:]), compare(hidden[0], hidden[1:])
    assert plain.verdict == blind.verdict
    assert plain.compared == blind.compared


@given(st.ip_addresses(), st.sampled_from(["{}", "x {} y", "[{}]", "{}/24", "({}),", "{}.", "src:{} dst={}", "{},{}"]))
def test_any_address_goes_from_any_text(address: Any, form: str) -> None:
    plain = getattr(address, "ipv4_mapped", None) or address
    if plain.is_loopback or plain.is_unspecified or str(plain) == "255.255.255.255":
        return
    text = form.format(address, address)
    assert str(address) not in Redactor(KEY).text(text)


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    Redactor(KEY).text(text)


def test_the_key_is_made_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(redact_key.KEY_VARIABLE, raising=False)
    made = redact_key.user_key()
    path = tmp_path / "netconsole" / redact_key.KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert redact_key.user_key() == made
    path.write_text("no key")
    with pytest.raises(BadInput, match="hexadecimal digits"):
        redact_key.user_key()
    monkeypatch.setenv(redact_key.KEY_VARIABLE, "ticket-4711")
    assert len(redact_key.user_key()) == redact_key.KEY_BYTES
    monkeypatch.setenv(redact_key.KEY_VARIABLE, "short")
    with pytest.raises(BadInput, match="8 characters or more"):
        redact_key.user_key()


def test_what_a_manifest_calls_a_process_or_a_vm_is_one_whatever_its_label() -> None:
    manifest = shipped("softnet")
    spec = manifest.tables["cpus"]
    owner, machine = (
        replace(spec.key[0], name=name, shown_as=kind) for name, kind in (("owner", "socket"), ("on", "vm"))
    )
    mine = replace(manifest, name="mine", tables={"cpus": replace(spec, key=(owner, machine))})
    document = secret_document(1)
    rows = [{"owner": "payrolld (17)", "on": "vm-of-acme", "processed": 1}]
    document["probes"]["mine"] = {"status": "attached", "tables": {"cpus": rows}}
    snapshot = msgspec.convert(document, Snapshot)
    [row] = Redactor(KEY).snapshot(snapshot, {"mine": mine}).probes["mine"].tables["cpus"]
    assert row["processed"] == 1 and "(17)" in str(row["owner"])
    assert not {"payrolld", "vm-of-acme"} & set(re.findall(r"[a-z-]+", str(row)))
    assert Redactor(KEY).snapshot(snapshot).probes["mine"].tables["cpus"] == rows, "nobody says what they are"


def test_the_latest_packets_of_rows_and_incidents_name_nothing_of_a_site() -> None:
    """Their devices are known from them alone."""
    fields = {
        "source": "192.0.2.17", "target": "2001:db8::17", "source_mac": "52:54:00:00:00:07",
        "target_mac": "52:54:00:aa:bb:cc", "came_in_by": "acme-uplink", "target_port": 53, "length_bytes": 98,
    }  # fmt: skip
    came = "2026-11-20T21:00:00Z"
    document = made_up.document(1, samples=30, drops_per_s=20)
    document["probes"]["kernel_drops"]["row_examples"] = {"drops": [{"came": came, "fields": fields}, None]}
    of_incident = {**fields, "came_in_by": "acme-backup"}
    document["incidents"] = [
        {"level": "!!", "cause": "full", "what": "acme-uplink: full", "example": {"came": came, "fields": of_incident}}
    ]
    manifests = {"kernel_drops": shipped("kernel_drops")}
    hidden = Redactor(KEY).snapshot(msgspec.convert(document, Snapshot), manifests)
    row, nothing = hidden.probes["kernel_drops"].row_examples["drops"]
    (incident,) = hidden.incidents or []
    assert row is not None and nothing is None and incident.example is not None
    assert (row.came, incident.example.came) == (came, came)
    assert {name: str(value).partition("-")[0] for name, value in row.fields.items()} == {
        "source": "ip4", "target": "ip6", "source_mac": "mac", "target_mac": "mac", "came_in_by": "device",
        "target_port": "53", "length_bytes": "98",
    }  # fmt: skip
    assert incident.what == f"{row.fields['came_in_by']}: full"
    same = set(fields) - {"came_in_by"}
    assert all(incident.example.fields[name] == row.fields[name] for name in same)
    assert str(incident.example.fields["came_in_by"]).startswith("device-")
    assert "acme" not in encode(hidden).decode()


def test_devices_and_namespaces_have_one_stand_in_each_through_the_whole_document() -> None:
    document = made_up.document(1, samples=30, facts={"nic/vnet3/master": "br-acme", "netns/4026532290/name": "acme"})
    document["host"]["name"] = "hv-017"
    where = {"device": "vnet3", "netns": "acme", "queue": 0}
    document["note"] = "vnet3 of acme, and vnet30, on br-acme; lo is fine"
    evidence = [{"probe": "kernel_drops", "kind": "table", "name": "drops", "labels": {"device": "vnet3"}}]
    document["incidents"] = [
        {"level": "!!", "cause": "tap-full", "what": "vnet3: its ring was full", "where": where, "evidence": evidence}
    ]
    document["balance"] = [{"stage": "qdisc", "device": "vnet3", "netns": "acme"}]
    # A process that is called as a word of ours changes no word of ours.
    document["probes"]["kernel_drops"]["tables"]["sockets"] = [{"process": "table", "netns": "acme", "device": "lo"}]
    hidden = Redactor(KEY).snapshot(msgspec.convert(document, Snapshot))
    [incident], [stage] = hidden.incidents or [], hidden.balance or []
    device, netns = incident.where["device"], incident.where["netns"]
    assert str(device).startswith("device-") and str(netns).startswith("netns-")
    assert incident.what == f"{device}: its ring was full" and incident.evidence[0].labels == {"device": device}
    assert incident.evidence[0].kind == "table" and incident.cause == "tap-full"
    assert (stage.device, stage.netns, stage.stage) == (device, netns, "qdisc")
    assert f"nic/{device}/master" in hidden.facts and hidden.note is not None
    bridge = hidden.facts[f"nic/{device}/master"].value
    assert hidden.note == f"{device} of {netns}, and vnet30, on {bridge}; lo is fine"
    [socket] = hidden.probes["kernel_drops"].tables["sockets"]
    assert (socket["netns"], socket["device"]) == (netns, "lo") and str(socket["process"]).startswith("process-")
    assert device in {row["device"] for row in hidden.probes["link_rates"].tables["links"]}


@pytest.mark.parametrize(
    ("fact", "value", "secret"),
    [
        (("nic", "uplink-a", "mtu"), 1500, "uplink-a"),
        (("tc", "uplink-b", "root"), "fq_codel", "uplink-b"),
        (("ovs", "bridge", "br-tenant", "fail_mode"), "secure", "br-tenant"),
        (("ovs", "port", "patch-a", "tag"), 7, "patch-a"),
        (("ovs", "system", "hostname"), "sw-rack3", "sw-rack3"),
        (("nic", "eth0", "master"), "bond-blue", "bond-blue"),
        (("netns", "4026532177", "name"), "red-customer", "red-customer"),
        (("vm", "x", "disk", "0", "file"), "/images/red-customer.img", "red-customer"),
        (("block", "dm-0", "mapped"), "vg-red--customer", "vg-red--customer"),
    ],
)
def test_a_name_that_only_a_fact_has_is_hidden_in_every_text(fact: tuple[str, ...], value: object, secret: str) -> None:
    document = made_up.document(1, samples=1)
    document["facts"] = {key(*fact): {"value": value}}
    document["note"] = f"it began on {value if fact[-1] == 'file' else secret}, they say"
    hidden = Redactor(KEY).snapshot(msgspec.convert(document, Snapshot))
    assert secret not in encode(hidden).decode()


def test_other_words_of_facts_are_no_names() -> None:
    document = made_up.document(1, samples=1)
    facts = {key("ovs", "other", "fast-path", "x"): "kernel-mode", key("nic", "eth-9"): 1}
    document["facts"] = {name: {"value": value} for name, value in facts.items()}
    document["note"] = "fast-path kernel-mode eth-9"
    assert Redactor(KEY).snapshot(msgspec.convert(document, Snapshot)).note == document["note"]


@pytest.mark.parametrize(("name", "is_hidden_within"), [("ab-1", True), ("a-1", False), ("abcd", False)])
def test_a_name_within_another_word_is_hidden_if_nothing_else_looks_like_it(name: str, is_hidden_within: bool) -> None:
    document = made_up.document(1, samples=1)
    document["facts"] = {key("vm", name, "pid"): {"value": 7}}
    document["note"] = f"x{name}x and {name}"
    note = Redactor(KEY).snapshot(msgspec.convert(document, Snapshot)).note or ""
    assert (name in note) != is_hidden_within and f"and {name}" not in note


@pytest.mark.parametrize(
    ("name", "in_text"), [("test-1", "te\u017ft-1"), ("\u00b5-vm", "\u03bc-vm"), ("WEB-1", "web-1")]
)
def test_a_letter_that_is_another_one_only_where_case_counts_hides_nothing(name: str, in_text: str) -> None:
    document = made_up.document(1, samples=1)
    document["facts"] = {key("vm", name, "pid"): {"value": 7}}
    document["note"] = f"see {in_text} and {name}"
    note = Redactor(KEY).snapshot(msgspec.convert(document, Snapshot)).note or ""
    first, second = re.findall(r"vm-[0-9a-f]+", note)
    assert first == second and in_text not in note


def with_device(name: str, said: str, netns: str = "host") -> Snapshot:
    document = made_up.document(1, samples=30)
    row = {"reason": "NO_SOCKET", "device": name, "netns": netns, "location": "x", "count": 1, "class": "benign"}
    document["probes"]["kernel_drops"]["tables"]["drops"] = [row]
    document["note"] = said
    return Redactor(KEY).snapshot(msgspec.convert(document, Snapshot))


def test_a_name_with_control_characters_is_redacted_as_sentences_write_it() -> None:
    name = "ten\x1bant\x07"
    taken = with_device(name, f"{safe(name)} (netns web): the firewall drops packets")
    assert "ant" not in (taken.note or "") and (taken.note or "").startswith("device-")


@pytest.mark.parametrize("name", ["a", "A", "is", "7"])
def test_a_name_that_is_a_word_is_taken_for_one_only_where_a_name_stands(name: str) -> None:
    sentence = "a row is 7 packets in a second"
    taken = with_device(name, sentence)
    assert taken.note == sentence
    row = taken.probes["kernel_drops"].tables["drops"][0]
    assert str(row["device"]).startswith("device-") or name.isdecimal()
    for said in (f"{name}: drops 7 packets", f"tc -s qdisc show dev {name}", f"drops (netns {name})"):
        taken = with_device("vnet1", said, netns=name) if "netns" in said or name == "7" else with_device(name, said)
        assert re.search(r"(device|netns)-[0-9a-f]{8}", taken.note or ""), taken.note


def test_a_namespace_whose_name_is_a_number_is_redacted_and_an_inode_is_not() -> None:
    for netns, expected in (("42", "netns-"), ("4026532177", "4026532177")):
        row = with_device("vnet1", "x", netns).probes["kernel_drops"].tables["drops"][0]
        assert str(row["netns"]).startswith(expected)


def test_what_commands_wrote_is_left_out_and_that_is_said() -> None:
    document = made_up.document(1, samples=3, drops_per_s=2)
    at = "2026-11-02T20:59:00Z"
    document["commands"] = [
        {"at": at, "command": "ip route get 198.51.100.9", "output": "via acme-gw", "status": 0},
        {"at": at, "command": "ss -t", "why": "no answer from 198.51.100.9"},
    ]
    found = Redactor(KEY).snapshot(msgspec.convert(document, Snapshot)).commands
    assert found is not None
    assert [(one.output, one.status) for one in found] == [(None, 0), (None, None)]
    assert found[0].why == LEFT_OUT and "no answer from" in (found[1].why or "")
    assert "198.51.100.9" not in f"{found}" and "acme" not in f"{found}"


def test_a_control_group_is_not_left_with_the_escaped_name_of_a_vm() -> None:
    group = "/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2dacme.scope"
    document = made_up.document(1, samples=3, drops_per_s=2)
    document["incidents"] = [
        {
            "level": "!",
            "cause": "cpu-wait",
            "what": "web-acme: acme) (x (44) takes 49 % of CPU 1",
            "where": {"vm": "web-acme"},
            "commands": [f"cat /sys/fs/cgroup'{group}'/cpu.stat"],
            "answer": {"group": group, "rival": "acme) (x (44)", "process": "acme) (x (44)", "rival_vm": None},
        }
    ]
    redacted = encode(Redactor(KEY).snapshot(msgspec.convert(document, Snapshot))).decode()
    assert "acme" not in redacted and "cat /sys/fs/cgroup'group-" in redacted


def test_the_id_of_an_io_thread_is_a_name() -> None:
    """People choose it: in a row, in a place, in a sentence, and where it is the rival. What others do is no name."""
    document = made_up.document(1, samples=3, drops_per_s=2)
    rows = [{"vm": "web", "role": f"{role}", "tid": 7} for role in ("I/O thread acme-7", "vCPU 3", "I/O thread ")]
    document["probes"]["thread_waits"] = {"status": "attached", "tables": {"threads": rows}}
    document["incidents"] = [
        {
            "level": "!",
            "cause": "cpu-wait",
            "what": "web: I/O thread acme-8 of db takes 49 % of CPU 1: its I/O thread acme-7 waits",
            "where": {"vm": "web", "role": "I/O thread acme-7"},
            "answer": {"rival": "I/O thread acme-8 of db", "process": None, "rival_vm": "db"},
        }
    ]
    redacted = Redactor(KEY).snapshot(msgspec.convert(document, Snapshot))
    assert b"acme" not in encode(redacted)
    told = [str(row["role"]) for row in redacted.probes["thread_waits"].tables["threads"]]
    assert told[0].startswith("I/O thread process-") and told[1:] == ["vCPU 3", "I/O thread "]


def test_nothing_that_a_host_answered_about_a_cause_is_left() -> None:
    rule = 'iifname "uplink0" ip saddr 198.51.100.0/24 drop comment "ACME\'s office"'
    said = f"eth0: nftables: {rule} (table acme-shop, chain in): 300 UDP packets/s refused"
    told = "eth0: secretd/712 listens at 198.51.100.9 port 80, answers leave by uplink0"
    of_switch = 'rule udp,in_port="wan-acme",nw_src=198.51.100.4 of br-acme, chain acme-guests'
    document = made_up.document(1, samples=3, drops_per_s=2)
    document["incidents"] = [
        {
            "level": "!",
            "cause": "firewall-drops",
            "what": f"{said}; {told}; {of_switch}",
            "commands": ["nft -a list chain inet acme-shop in"],
            "answer": {
                "rule": rule,
                "table": "acme-shop",
                "chain": "in",
                "process": "secretd/712",
                "out_device": "uplink0",
                "legacy_chain": "acme-guests",
                "match": 'udp,in_port="wan-acme",nw_src=198.51.100.4',
                "bridge": "br-acme",
            },
        }
    ]
    page = encode(Redactor(KEY).snapshot(msgspec.convert(document, Snapshot))).decode()
    for secret in ("uplink0", "198.51.100", "ACME", "office", "acme-shop", "secretd", "wan-", "guests"):
        assert secret.lower() not in page.lower(), secret
    assert "nftables: rule-" in page and "packets/s refused" in page
