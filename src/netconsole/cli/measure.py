"""The console itself and the command `snapshot`: both measure this host now."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from netconsole.base.errors import Unable, bad
from netconsole.base.figure import safe, things
from netconsole.cli import replay
from netconsole.cli.filters import (
    AddressOption,
    DeviceOption,
    EthertypeOption,
    MacOption,
    NetnsOption,
    PortOption,
    ProtocolOption,
    ReasonOption,
    VlanOption,
    VmOption,
    given,
)
from netconsole.cli.options import (
    DONE,
    FOUND,
    INTERRUPTED,
    UNABLE,
    ForceOption,
    FormatOption,
    HostsOption,
    IntervalOption,
    OutputOption,
    ProbeOption,
    ProfileOption,
    ReplaceOption,
    approach,
    belongs_after,
    choose,
    enter,
    fail,
    has_terminal,
    interval_of,
    interval_within,
    none_measured,
    only_one,
)
from netconsole.run import preflight
from netconsole.run.preflight import DEFAULT_PROFILE

DEFAULT_DURATION = "10s"
MAX_DURATION_S = 24 * 3600.0
MAX_NOTE = 2000


def console(
    context: typer.Context,
    profile: ProfileOption = DEFAULT_PROFILE,
    probe: ProbeOption = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME|FILE", help="Compare every figure with this baseline.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record everything to a new file.")
    ] = None,
    device: DeviceOption = None,
    vm: VmOption = None,
    netns: NetnsOption = None,
    address: AddressOption = None,
    port: PortOption = None,
    protocol: ProtocolOption = None,
    vlan: VlanOption = None,
    ethertype: EthertypeOption = None,
    mac: MacOption = None,
    reason: ReasonOption = None,
    interval: IntervalOption = None,
    force: ForceOption = False,
    hosts: HostsOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> int:
    """Open the live console."""
    if context.invoked_subcommand is not None:
        belongs: dict[str, object] = {"--profile": profile != DEFAULT_PROFILE, "--probe": probe, "--interval": interval}
        belongs |= {"--baseline": baseline, "--record": record, "--force": force, "--host": hosts}
        narrowing = given(device, netns, address, port, protocol, vlan, ethertype, mac, vm, reason)
        belongs |= {f"--{name}": True for name in narrowing}
        for name, is_given in belongs.items():
            if is_given:
                raise belongs_after(name, context)
        return DONE
    if version:
        import netconsole

        print(f"netconsole {netconsole.__version__}")
        return DONE
    if not has_terminal():
        raise bad("terminal", "", "the console needs one; `netconsole snapshot` measures without")
    interval_s, against = interval_of(interval), None
    filters = given(device, netns, address, port, protocol, vlan, ethertype, mac, vm, reason)
    if hosts and len(hosts) > 1:
        for name, value in {"--baseline": baseline, "--record": record}.items():
            if value is not None:
                raise bad(name, "", "this option is for one host; in the console of a host press b or w instead")
        return _rack(hosts, profile, probe, filters, interval_s, force)
    host = only_one(hosts, "netconsole")
    if baseline is not None:
        from netconsole.compare.baseline import resolve

        against = baseline, resolve(baseline)[0]
    with approach(host) as way:
        try:
            manifests, chosen, requests = choose(profile, probe, host, filters)
        except Unable as error:
            shown = replay.offer(str(error))
            if shown is None:
                raise
            return shown
        if sys.stderr.isatty():
            count = things(len(requests), "probes")
            print(f"netconsole: profile {safe(chosen.name, 40)}, {count}; the screen opens next", file=sys.stderr)
        from netconsole.host import door
        from netconsole.recording.recorder import Recorder, describe
        from netconsole.run.assembly import live_run
        from netconsole.run.headless import facts
        from netconsole.run.namespace_there import located
        from netconsole.tui.run import run as run_console

        there = enter(way, manifests)
        chosen, requests = located(chosen, requests, there)
        later = [] if force else preflight.put_off(chosen, manifests, requests, probe or (), there)
        now = [request for request in requests if request not in later]
        preflight.before_start(chosen, manifests, now, force, may_ask=True, named=probe or (), host=there)
        recorder = None
        if record is not None:
            modes = {request.name: request.mode for request in requests}
            header = describe(chosen, modes, manifests, door.describe(there))
            recorder = Recorder(record, header, chosen.budget)
        with live_run(now, chosen, manifests, later=later, host=there, interval_s=interval_s) as live:
            if recorder is not None:
                live.session.attach(recorder)
            reads = partial(facts, there, live.session.scope), against, recorder
            return run_console(live.session, chosen, manifests, live.enforcer, *reads, live.escalator)


def _rack(
    hosts: Sequence[str],
    profile: str,
    probe: Sequence[str] | None,
    filters: Mapping[str, str | int],
    interval_s: float,
    force: bool,
) -> int:
    """Several hosts: a line for each comes first."""
    from netconsole.run.rack import Rack, RackPlan
    from netconsole.tui.run import run_rack

    manifests, chosen, requests = choose(profile, probe, hosts[0], filters)
    rack = Rack(hosts, RackPlan(chosen, manifests, requests, probe or (), force, interval_s))
    with contextlib.closing(rack):
        print(f"netconsole: connecting to {len(hosts)} hosts…", flush=True)
        rack.open(lambda line: print(f"netconsole: {line}", flush=True))
        return run_rack(rack, chosen, manifests)


def snapshot(
    profile: ProfileOption = DEFAULT_PROFILE,
    probe: ProbeOption = None,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="How long to measure, such as 500ms, 10s, 5m.")
    ] = DEFAULT_DURATION,
    output: OutputOption = None,
    replace: ReplaceOption = False,
    format: FormatOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="NAME|FILE",
            help="Compare with this baseline. Exit code 1 if something is worse, 3 if nothing could be compared.",
        ),
    ] = None,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT", help="A note for the reader: what you see or suspect.")
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Replace addresses and names by pseudonyms.")] = False,
    device: DeviceOption = None,
    vm: VmOption = None,
    netns: NetnsOption = None,
    address: AddressOption = None,
    port: PortOption = None,
    protocol: ProtocolOption = None,
    vlan: VlanOption = None,
    ethertype: EthertypeOption = None,
    mac: MacOption = None,
    reason: ReasonOption = None,
    interval: IntervalOption = None,
    force: ForceOption = False,
    hosts: HostsOption = None,
) -> int:
    """Measure without a screen, and write a report. Progress goes to standard error."""
    from netconsole.base.figure import parse_duration

    host = only_one(hosts, "netconsole snapshot")
    duration_s = parse_duration(duration)
    if duration_s is None or not 0 < duration_s <= MAX_DURATION_S:
        raise bad("--duration", "", f'expected a time from 1ms to 24h such as "10s", found "{safe(duration, 40)}"')
    interval_s = interval_within(interval, duration_s)
    from netconsole.base import output as out

    form = out.chosen(format, output, "json", replace)
    out.ready(output)
    reference = redactor = None
    if baseline is not None or redact:
        from netconsole.report import ticket

        reference, redactor = ticket.reference(baseline), ticket.redactor(redact)
    filters = given(device, netns, address, port, protocol, vlan, ethertype, mac, vm, reason)
    with approach(host) as way:
        manifests, chosen, requests = choose(profile, probe, host, filters)
        from netconsole.run import headless
        from netconsole.run.assembly import live_run
        from netconsole.run.namespace_there import located
        from netconsole.run.stop import Interrupted

        there = enter(way, manifests)
        chosen, requests = located(chosen, requests, there)
        start = preflight.before_start(chosen, manifests, requests, force, named=probe or (), host=there)
        every_s = headless.statistics_every_s(duration_s)
        try:
            with live_run(
                start.requests, chosen, manifests, left_out=start.left_out, every_s=every_s, host=there,
                interval_s=interval_s,
            ) as live:  # fmt: skip
                facts = partial(headless.facts, there, live.session.scope)
                what = manifests, chosen, duration_s, facts, live.enforcer, note and note[:MAX_NOTE]
                taken = headless.measure(live.session, *what, interval_s)
        except Interrupted as error:
            return fail(f"interrupted, nothing written: {error}", INTERRUPTED)
    from netconsole.report import ticket  # late: what writes reports takes memory that the measuring does without

    content, found = ticket.render(taken, form, manifests, reference, redactor)
    out.write(content, output)
    out.print_progress(f"netconsole: {headless.outcome(taken, output, redact)}")
    measured = [name for name, data in taken.probes.items() if data.status in ("attached", "degraded")]
    own = [request.name for request in start.requests if request.source == "bpf"]
    if not (set(own or measured) & set(measured)) and not live.enforcer.lowered:
        lost = live.session.connection().why
        if host is not None and lost is not None:
            return fail(f"{lost}; the report has what was measured before", UNABLE)
        return fail(none_measured(start.requests), UNABLE)
    if any(one.action == "stopped" for one in live.enforcer.actions):
        return fail("the budget was exceeded, and the profile stops probes then; the report says when", FOUND)
    if found == UNABLE:
        return fail("nothing could be compared with the baseline; the report says why", UNABLE)
    return found
