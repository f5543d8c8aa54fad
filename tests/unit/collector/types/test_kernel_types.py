"""Headers from BTF: exact layouts by construction, names that do not clash, facts about the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netconsole_collector.types import btf as b
from netconsole_collector.types import header_tree, kernel_macros, kernel_types, source_names
from netconsole_collector.types.btf import Btf
from tests.support.btf_builder import BtfBuilder


class Kernel:
    """A few types such as a kernel has."""

    def __init__(self) -> None:
        one = self.builder = BtfBuilder()
        self.u8, self.u32, self.u64 = (
            one.integer("unsigned char", 1),
            one.integer("unsigned int", 4),
            one.integer("long", 8),
        )
        self.device = one.record("net_device", 128, [("ifindex", self.u32, 0), ("state", self.u64, 64 * 8)])
        pointer = one.pointer(self.device)
        inner = one.record("", 8, [("low", self.u32, 0), ("high", self.u32, 32)])
        either = one.record("", 8, [("whole", self.u64, 0), ("", inner, 0)], union=True)
        members = [("dev", pointer, 0), ("", either, 64), ("len", self.u32, 160)]
        self.packet = one.record("sk_buff", 32, members)
        self.bits = one.bit_record(
            "iphdr", 4, [("ihl", self.u8, 0, 4), ("version", self.u8, 4, 4), ("tos", self.u8, 24, 0)]
        )
        one.enum("skb_drop_reason", [("SKB_NOT_DROPPED_YET", 0), ("SKB_DROP_REASON_NO_SOCKET", 3), ("lower_case", 4)])
        one.enum("", [("IPPROTO_UDP", 17)])
        prototype = one.prototype(0, [self.u64, pointer, self.u64, self.u32])
        one.typedef("btf_trace_kfree_skb", one.pointer(prototype))
        one.function("tcp_v4_rcv", one.prototype(self.u32, [pointer]))

    def types(self, path: Path) -> Btf:
        return Btf(self.builder.write(path / "vmlinux"))


@pytest.fixture
def types(tmp_path: Path) -> Btf:
    return Kernel().types(tmp_path)


def header(types: Btf, source: str, taken: set[str] | None = None) -> str:
    return kernel_types.header(types, source_names.used(source), (taken or set()) | source_names.defined(source))


def record(text: str, name: str) -> str:
    found = re.search(rf"^struct {name} \{{.*\}} __attribute__\(.*$", text, re.MULTILINE)
    assert found is not None
    return found.group()


def test_padding_is_spelled_out_and_structs_are_packed(types: Btf) -> None:
    text = record(header(types, "struct net_device *d;"), "net_device")
    assert "unsigned int ifindex; char __pad1[60]; long state; char __pad2[56];" in text
    assert text.endswith("__attribute__((packed, aligned(8)));")


def test_no_padding_by_unnamed_long_bit_fields(types: Btf) -> None:
    assert not re.search(
        r"\b(long|int|short)\s*:", header(types, "struct net_device *d; struct sk_buff *s; struct iphdr *i;")
    )


def test_bit_fields_and_the_gap_behind_them(types: Btf) -> None:
    text = record(header(types, "struct iphdr *i;"), "iphdr")
    assert "unsigned char ihl:4; unsigned char version:4; char __pad1[2]; unsigned char tos;" in text


def test_anonymous_members_are_written_in_place(types: Btf) -> None:
    text = record(header(types, "struct sk_buff *s;"), "sk_buff")
    assert "union { long whole; struct { unsigned int low; unsigned int high; }" in text


def test_a_pointer_is_followed_only_when_its_name_is_used(types: Btf) -> None:
    assert "ifindex" not in header(types, "struct sk_buff *s; s->len;")
    assert "ifindex" in header(types, "struct sk_buff *s; s->dev;")


def test_a_taken_tag_gets_another_name(types: Btf) -> None:
    text = header(types, "struct sk_buff *s; s->dev", {"net_device"})
    assert "struct net_device___2 *dev" in text
    assert "struct net_device *" not in text


def test_what_the_source_defines_is_left_alone(types: Btf) -> None:
    text = header(types, "struct sk_buff { int x; }; enum { IPPROTO_UDP = 99 };")
    assert "struct sk_buff {" not in text
    assert "IPPROTO_UDP" not in text


def test_enumerators_come_by_name_and_never_in_lower_case(types: Btf) -> None:
    text = header(types, "int lower_case = IPPROTO_UDP + SKB_DROP_REASON_NO_SOCKET;")
    assert "#define IPPROTO_UDP 17" in text
    assert "SKB_DROP_REASON_NO_SOCKET 3" in text
    assert "lower_case" not in text


def test_enumerators_that_btf_lacks_have_a_fallback(types: Btf) -> None:
    text = header(types, "IPPROTO_TCP IPPROTO_UDP TCP_ESTABLISHED")
    assert "#define IPPROTO_TCP 6" in text
    assert text.count("IPPROTO_UDP") == 1
    assert "#define TCP_ESTABLISHED 1" in text


def test_macros_come_with_the_macros_that_they_use(types: Btf) -> None:
    text = header(types, "int x = TC_H_MAJ(3);")
    assert "#define TC_H_MAJ(h) ((h)&TC_H_MAJ_MASK)" in text
    assert "#define TC_H_MAJ_MASK" in text
    assert "ETH_P_IP" not in text


@pytest.mark.parametrize("name", ["ntohs", "ntohl", "htons", "htonl", "be16_to_cpu"])
def test_byte_order_helpers_are_no_function_like_macros(name: str) -> None:
    """BCC does not rewrite a member read inside the argument of a function-like macro."""
    assert re.search(rf"#define {name} \w+\n", kernel_macros.define([name]))


def test_facts_about_the_kernel(types: Btf) -> None:
    used = {
        "HAVE_sk_buff_len",
        "HAVE_sk_buff_low",  # in an anonymous struct
        "HAVE_sk_buff_missing",
        "HAVE_SKB_DROP_REASON_NO_SOCKET",
        "HAVE_SKB_DROP_REASON_MISSING",
        "HAVE_tcp_v4_rcv",
        "HAVE_kfree_skb",
        "NARGS_kfree_skb",
        "NARGS_tcp_v4_rcv",
        "NARGS_missing",
    }
    assert kernel_types.facts(types, used).splitlines() == [
        "#define HAVE_SKB_DROP_REASON_NO_SOCKET 1",
        "#define HAVE_kfree_skb 1",
        "#define HAVE_sk_buff_len 1",
        "#define HAVE_sk_buff_low 1",
        "#define HAVE_tcp_v4_rcv 1",
        "#define NARGS_kfree_skb 3",
        "#define NARGS_tcp_v4_rcv 1",
    ]


def test_names_of_a_source() -> None:
    source = """
#define LIMIT 4            // not: struct comment_name
BPF_HASH(drops, struct key, u64, 16);
BPF_TABLE("percpu_hash", struct in6_addr, u64, waits, 16);
struct key { u64 where; }; typedef int number;
enum colour { RED, GREEN = 3, };
static inline int helper(struct sk_buff *skb) { return 0; }
"""
    defined = source_names.defined(source)
    assert {"LIMIT", "drops", "waits", "key", "number", "colour", "RED", "GREEN", "helper"} <= defined
    assert not {"sk_buff", "in6_addr", "u64"} & defined
    assert "comment_name" not in source_names.used(source)


@pytest.mark.parametrize(
    ("release", "code"),
    [("6.1.0-56-amd64", 0x060100), ("5.4.300", 0x0504FF), ("6.18.44-fc-v669", 0x06122C), ("4.18", 0x041200)],
)
def test_the_version_code_of_a_release(release: str, code: int) -> None:
    assert header_tree.version_code(release) == code


def test_the_tree_has_what_bcc_includes() -> None:
    tree = header_tree.files("struct nothing;", "6.1.0")
    assert tree["include/uapi/linux/bpf.h"] == ""  # BCC's own comes first
    for path in ("include/linux/kconfig.h", "include/linux/types.h", "include/linux/version.h"):
        assert tree[path]
    assert any(path.endswith("/asm/page.h") and "kernel_types.h" in text for path, text in tree.items())


def test_pages_are_those_of_the_kernel_that_is_compiled_for() -> None:
    """An arm64 kernel may have pages of 64 kB, whatever this machine has."""
    page = header_tree.files("", "6.12.0", "aarch64", 65536)["arch/arm64/include/asm/page.h"]
    assert "#define PAGE_SIZE" in page and "65536" in page and "#define PAGE_SHIFT 16" in page


def test_the_running_kernel_s_types_take_kilobytes_not_megabytes() -> None:
    if not Path(b.VMLINUX).exists():
        pytest.skip("cannot run here: the kernel has no BTF")
    text = header(Btf(), "struct sk_buff *skb; skb->dev; struct Qdisc *q;")
    assert 10_000 < len(text) < 400_000
    tags = re.findall(r"^(?:struct|union) (\w+) \{", text, re.MULTILINE)
    assert len(tags) == len(set(tags))
