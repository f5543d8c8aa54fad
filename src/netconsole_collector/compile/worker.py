"""The compile worker: loads and attaches one probe, hands all descriptors to the collector, and ends.

A job is {"spec", "source", "cpus", "ring", "config", "keep_in", "explains", "kprobes"} (docs/design/collector.md). For
another kernel there are also its "btf" and "release" (in tests its "headers"; "machine" and "page" in bytes, if they
are not this machine's) with "compile_only", and "plain": no tracepoints typed by BTF. A module then counts as loaded
when it is among "modules", or its BTF lies beside that of vmlinux. Tests may ask for "by_helpers": all reads of the
kernel are calls of a helper.

The worker lives for less than a second, and the memory of a compile (over 100 MB) goes with it. Compiled programs are
kept, and loaded again without a compile. job.py starts the worker with two descriptors: a file with the job, and a
Unix socket for the answer.
"""

import array
import errno
import json
import os
import resource
import signal
import socket
import struct
from typing import Any, Dict, List, Optional, Tuple

from netconsole_collector.compile import cache, captured_output
from netconsole_collector.compile.attaching import attached_at
from netconsole_collector.compile.compiled import (
    DIRECT,
    PLAIN,
    Compiled,
    can_be_typed,
    first_choice,
    is_needless,
    make_maps,
    with_maps,
)
from netconsole_collector.compile.refused import NOT_LOADED, ProbeRefused, no_maps
from netconsole_collector.kernel import attach, bpf_maps, loading, modules, page_map
from netconsole_collector.kernel.process import on_parents_death
from netconsole_collector.probe import config
from netconsole_collector.types import btf

_STDOUT = 1
MAX_DESCRIPTORS = 253
"""SCM_MAX_FD of the kernel."""

SAID = 2
"""Of what cannot be measured so many things are named; the others are counted."""
_NONE_IS_LEFT = "none of the probe's programs is for this kernel"

_MAX_FAR_BYTES, _MAX_FAR_S = 4 << 30, 120
"""Address space and CPU time of a compile for another host. The biggest probe takes 0.3 GB and 3 s."""

Json = Dict[str, Any]


def main(arguments: List[str]) -> int:
    """Arguments: descriptor of the job, descriptor of the socket, pid of the collector. Leaves with os._exit."""
    job_fd, socket_fd, parent = (int(argument) for argument in arguments)
    on_parents_death(signal.SIGKILL)
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:  # the collector's on a crowded host; a compile can wait
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        os.setsid()  # its session has a higher weight (CONFIG_SCHED_AUTOGROUP)
    if os.getppid() != parent:  # the collector died before we asked for the signal
        os._exit(0)
    answer_socket = socket.socket(fileno=socket_fd)
    with os.fdopen(job_fd, "rb") as file:
        job = json.loads(file.read().decode())
    if "btf_digest" in job:
        _limit()
    worker = Worker(job)
    answer = worker.run()
    _send(answer_socket, answer, worker.descriptors)
    os._exit(0)


def _limit() -> None:
    """The types are those of another host, which may be hostile: they must not take this machine's memory or CPUs."""
    for limit, most in ((resource.RLIMIT_AS, _MAX_FAR_BYTES), (resource.RLIMIT_CPU, _MAX_FAR_S)):
        resource.setrlimit(limit, (most, most))


def _send(answer_socket: socket.socket, answer: Json, descriptors: List[int]) -> None:
    """Sends the length and the JSON, and the descriptors with the first byte. Waits until the collector has them."""
    message = json.dumps(answer).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    data = struct.pack("=I", len(message)) + message
    sent = answer_socket.sendmsg([data], rights)
    answer_socket.sendall(data[sent:])
    answer_socket.recv(1)


class Worker:
    """One job. The answer refers to ``descriptors`` by index."""

    def __init__(self, job: Json) -> None:
        self.job = job
        self.spec: Json = dict(job["spec"], programs=[one for one in job["spec"]["programs"] if _applies(one, job)])
        self.descriptors: List[int] = []
        self._device = config.device_of(bytes.fromhex(job.get("config") or ""))
        self._memlock = True
        self._coming_back = attach.ComingBack()
        self._may_be_typed = attach.has_kprobes() and not job.get("kprobes")

    def run(self) -> Json:
        """The answer: {"ok": true, …} or {"ok": false, "state", "why", "help", "detail"}. Never raises."""
        try:
            return self._answer()
        except ProbeRefused as refused:
            return self.refused(refused)
        except Exception as error:
            import traceback

            self.drop()
            why = "{}: {}".format(type(error).__name__, error).replace("\n", " ")
            detail = traceback.format_exc() + captured_output.take(_STDOUT)
            return {"ok": False, "state": "failed", "why": why, "help": None, "detail": detail, "missing": []}

    def load(self, compiled: Compiled) -> Json:
        """The same for programs that were compiled elsewhere for this kernel. Raises ProbeRefused."""
        self.refuse_early()
        self._memlock = bpf_maps.raise_memlock()
        return self._load(compiled)

    def refused(self, refused: ProbeRefused) -> Json:
        """The answer for a probe that cannot run. Nothing of it is left."""
        self.drop()
        answer: Json = {"ok": False, "state": refused.state, "why": str(refused), "help": refused.help}
        answer["detail"] = refused.detail
        answer["missing"] = refused.missing
        return answer

    def load_kept(self) -> Optional[Json]:
        """The same for programs that are kept from an earlier compile. None: a compile is needed."""
        self._memlock = bpf_maps.raise_memlock()
        with cache.place_of(self.job, self.spec) as place:
            return self._load_from(place)

    def _answer(self) -> Json:
        if not self.job.get("compile_only"):
            self.refuse_early()
        self._memlock = bpf_maps.raise_memlock()
        with cache.place_of(self.job, self.spec) as place:
            answer = self._load_from(place)
            if answer is None:
                compiled, answer = self._compile_and_load()
                if place is not None:
                    cache.keep(place.folder, place.name, compiled)
            return answer

    def _load_from(self, place: Optional[cache.KeptPlace]) -> Optional[Json]:
        kept = None if place is None else cache.find(place.folder, place.name)
        # Programs do not tell why the kernel has refused cheaper ones. Only a compile finds out.
        if kept is not None and not (self.job.get("explains") and kept.way == PLAIN):
            try:
                return self._load(kept)
            except ProbeRefused:
                self.drop()  # a compile will tell what is wrong
        return None

    def refuse_early(self) -> None:
        """Raises ProbeRefused for what needs no compile to be known."""
        unattachable = attach.without_kprobes(self.spec["programs"])
        if unattachable:
            measured = list(dict.fromkeys(one["measures"] for one in unattachable))
            more = " and {} more".format(len(measured) - SAID) if len(measured) > SAID else ""
            what = ", ".join(measured[:SAID]) + more
            why = "{}; netconsole cannot measure {}".format(unattachable[0]["tried"][0]["why"], what)
            refused = ProbeRefused(why, "unsupported")
            refused.missing = unattachable
            raise refused
        module = self.spec["probe"].get("module")
        if module and not modules.is_loaded(module):
            raise ProbeRefused(NOT_LOADED.format(module), "unsupported")

    def _compile_and_load(self) -> Tuple[Compiled, Json]:
        """Tries programs with few calls of helpers first. The plain ones follow, and tell what is wrong.

        "cheaper_refused" in the answer is why the kernel refused the first ones. None: it did not.
        """
        from netconsole_collector.compile.compiler import Compiler

        compiler = Compiler(self.job, self.spec, self._memlock)
        try:
            *better, plain = compiler.ways()
            why = None
            for way in better:
                try:
                    compiled = compiler.compile(way)
                    return compiled, self._load(compiled)
                except ProbeRefused as refused:
                    why = _words_of_verifier(refused)
                    self.drop()
            compiled = compiler.compile(plain)
            return compiled, {**self._load(compiled), "cheaper_refused": why}
        finally:
            compiler.close()

    # ---- loading ----

    def _load(self, compiled: Compiled) -> Json:
        """Makes the maps, loads and attaches. Raises ProbeRefused, with the descriptors so far in ``descriptors``.

        With DIRECT every program that can be BTF-typed has to be. The others are loaded as usual, and have to read
        the kernel by NC_READ alone. When the verifier refuses one, the whole attempt fails, unless they are plain.
        """
        answer: Json = {
            "ok": True,
            "programs": [],
            "missing": [],
            "maps": {},
            "names": {"drop_reason": compiled.drop_reasons} if compiled.drop_reasons else {},
            "types": compiled.types,
            "facts": compiled.facts,
            "cheaper_refused": None,
        }
        if not self.job.get("compile_only"):  # programs for another kernel cannot be loaded here
            answer["maps"] = self._maps(compiled)
            answer["programs"], answer["missing"] = self._programs(compiled, self._codes(compiled, answer["maps"]))
        answer["max_rss_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return answer

    def _maps(self, compiled: Compiled) -> Dict[str, int]:
        """Makes the maps, and sets the filters before the first packet: what they keep out must not be counted once."""
        try:
            maps = make_maps(compiled)
        except OSError as error:
            raise no_maps(os.strerror(error.errno or 0), error.errno == errno.EPERM, self._memlock) from None
        if "config" in self.job and "nc_config" in maps:
            bpf_maps.Map(maps["nc_config"]).set(bytes(4), bytes.fromhex(self.job["config"]))
        if "nc_module_text" in maps:
            module = self.spec["probe"]["module"]
            try:
                text = modules.text_of(module)
            except ValueError as error:
                raise ProbeRefused(str(error), "unsupported") from None
            bpf_maps.Map(maps["nc_module_text"]).set(bytes(4), struct.pack("=QQ", *text))
        if "nc_page_map" in maps:
            bpf_maps.Map(maps["nc_page_map"]).set(bytes(4), struct.pack("=QQ", *page_map.addresses()))
        return {name: self._hand_over(fd) for name, fd in maps.items()}

    def _codes(self, compiled: Compiled, maps: Dict[str, int]) -> Dict[str, bytes]:
        numbers = {place: self.descriptors[index] for place, index in enumerate(maps.values())}
        return {name: with_maps(code, numbers) for name, code in compiled.functions.items()}

    def _programs(self, compiled: Compiled, codes: Dict[str, bytes]) -> Tuple[List[Json], List[Json]]:
        """The programs that were attached, and those that are missing and not required."""
        attached: List[Json] = []
        missing: List[Json] = []
        for entry in self.spec["programs"]:
            if is_needless(entry, compiled.facts):
                continue
            typed = compiled.way == DIRECT and can_be_typed(entry, compiled.targets, compiled.facts)
            choices = [first_choice(entry, compiled.facts)] if typed else entry["attach"]
            one, tried = self._attach_one(compiled, codes, entry, choices, typed)
            if one is not None:
                attached.append(one)
                continue
            missing.append({"name": entry["name"], "measures": entry.get("measures", entry["name"]), "tried": tried})
            must_fail = compiled.way != PLAIN and (typed or any(one["detail"] for one in tried))
            if must_fail or entry.get("required", True):
                raise _missing_refusal(missing)
        if not attached:
            raise _missing_refusal(missing) if missing else ProbeRefused(_NONE_IS_LEFT, "unsupported")
        return attached, missing

    def _attach_one(
        self, compiled: Compiled, codes: Dict[str, bytes], entry: Json, choices: List[Json], direct: bool
    ) -> Tuple[Optional[Json], List[Json]]:
        """Attaches the first alternative that works. Returns the program or None, and what was tried before.

        An attached program has "refused": the cheaper kinds of program on the same function, and why they were not.
        """
        tried: List[Json] = []
        attach_function = self._coming_back.attach if _is_attached_again(entry, self.spec) else attach.attach_called
        for alternative in choices:
            refused: List[Json] = []
            for point in attach.kinds_of(attach.parse(alternative["point"]), self._may_be_typed):
                try:
                    point = attach.at_device(point, self._device)
                    program, link = attached_at(compiled, codes, alternative, point, direct, attach_function)
                except attach.CannotAttach as error:
                    refused.append({"point": attach.text(point), "why": str(error), "detail": ""})
                except loading.LoadRefused as error:
                    why = "{}: {}".format(alternative["function"], error)
                    refused.append({"point": attach.text(point), "why": why, "detail": error.log})
                else:
                    said = [one["point"] for one in refused]
                    refused = [one for one in tried if _is_cheaper(one, point) and one["point"] not in said] + refused
                    attached: Json = {"name": entry["name"], "attach": attach.text(point), "refused": refused}
                    attached.update(program=self._hand_over(program), link=self._hand_over(link))
                    return attached, tried
            # A function that there is not is refused in the same words for each kind: the last one says enough.
            tried.extend(one for one in refused if one is refused[-1] or one["why"] != refused[-1]["why"])
        return None, tried

    def _hand_over(self, fd: int) -> int:
        self.descriptors.append(fd)
        if len(self.descriptors) > MAX_DESCRIPTORS:
            raise ProbeRefused("more than {} maps and programs in one probe".format(MAX_DESCRIPTORS))
        return len(self.descriptors) - 1

    def drop(self) -> None:
        """Ends a failed attempt: it must not measure while the next one is made."""
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []


def _is_attached_again(entry: Json, spec: Json) -> bool:
    """Whether the program is detached and attached again while the probe runs (running.py, followers.py)."""
    goes_on = entry.get("goes_on") or "counters" in spec["probe"].get("modes", [])  # a program of all modes counts then
    rests = "seen_pct" in spec.get("knobs", {}) and not goes_on
    return bool(rests or entry.get("modes") or entry.get("follows"))


def _is_cheaper(one: Json, point: attach.Point) -> bool:
    """Whether an earlier alternative was to be attached to this function by fentry or fexit."""
    before = attach.parse(one["point"])
    return before.kind in attach.TYPED and before.name == point.name


def _applies(entry: Json, job: Json) -> bool:
    """False for a program of a module that is not loaded: it has nothing to measure."""
    if "module" not in entry:
        return True
    if job.get("modules") is not None:
        return entry["module"].replace("-", "_") in job["modules"]
    if job.get("btf"):
        return bool(btf.module_paths([entry["module"]], os.path.dirname(job["btf"])))
    return modules.is_loaded(entry["module"])


def _words_of_verifier(refused: ProbeRefused) -> str:
    """Why it refused the last program that it refused; where it refused none, the whole sentence."""
    tried = [one["why"] for program in refused.missing for one in program["tried"] if one["detail"]]
    return str(tried[-1] if tried else refused)


def _missing_refusal(missing: List[Json]) -> ProbeRefused:
    tried = missing[-1]["tried"]
    loaded = [entry for entry in tried if entry["detail"]]
    why = "; ".join("{}: {}".format(e["point"], e["why"]) if e["point"] not in e["why"] else e["why"] for e in tried)
    refused = ProbeRefused("{} cannot be measured: {}".format(missing[-1]["measures"], why or "no attach point"))
    refused.state = "failed" if loaded else "unsupported"
    refused.detail = "\n".join(entry["detail"] for entry in loaded)
    refused.missing = missing
    return refused
