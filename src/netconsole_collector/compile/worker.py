"""The compile worker: loads and attaches one probe, hands every descriptor over, and is gone.

A job is {"spec", "source", "cpus", "ring", "config", "keep_in", "afresh"} (collector.md); for tests
also "btf" and "release" of another kernel (or its "headers") with "compile_only", and "plain": no BTF-typed programs.
Of another kernel those modules are taken for loaded whose BTF lies beside that of vmlinux.

It lives for less than a second, so that what a compile takes (over 100 MB) goes with it; what a compile has left is
kept, and loaded again without one. Started by compile_job.py with two descriptors: a file with the job, and a Unix
socket for the answer.
"""

import array
import errno
import json
import os
import re
import resource
import signal
import socket
import struct
import traceback
from typing import Any, Dict, List, Optional, Tuple

from netconsole_collector.compile import cache, captured_output
from netconsole_collector.compile.compiled import Compiled, can_be_typed, make_maps, with_maps
from netconsole_collector.compile.refused import Refused, no_maps
from netconsole_collector.kernel import attach, bpf_maps, loading, modules
from netconsole_collector.kernel.parent import on_parents_death
from netconsole_collector.types import btf, header_tree, prototypes

_STDOUT = 1
MAX_DESCRIPTORS = 253
"""SCM_MAX_FD of the kernel."""

_MEMLOCK_KERNEL = (5, 11)

Json = Dict[str, Any]


def main(arguments: List[str]) -> int:
    """Arguments: descriptor of the job, descriptor of the socket, pid of the collector. Leaves with os._exit."""
    job_fd, socket_fd, parent = (int(argument) for argument in arguments)
    on_parents_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask to die with it
        os._exit(0)
    answer_socket = socket.socket(fileno=socket_fd)
    with os.fdopen(job_fd, "rb") as file:
        job = json.loads(file.read().decode())
    worker = Worker(job)
    answer = worker.run()
    _send(answer_socket, answer, worker.descriptors)
    os._exit(0)


def _send(answer_socket: socket.socket, answer: Json, descriptors: List[int]) -> None:
    """Length, JSON; the descriptors ride on the first byte. Then waits until the collector has them."""
    message = json.dumps(answer).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    data = struct.pack("=I", len(message)) + message
    sent = answer_socket.sendmsg([data], rights)
    answer_socket.sendall(data[sent:])
    answer_socket.recv(1)


class Worker:
    """One job. ``descriptors`` are what the answer refers to by index."""

    def __init__(self, job: Json) -> None:
        self.job = job
        self.spec: Json = dict(job["spec"], programs=[one for one in job["spec"]["programs"] if _has_place(one, job)])
        self.descriptors: List[int] = []
        self._memlock = True

    def run(self) -> Json:
        """The answer: {"ok": true, …} or {"ok": false, "state", "why", "help", "detail"}; never raises."""
        try:
            return self._answer()
        except Refused as refused:
            self._let_go()
            answer = {"ok": False, "state": refused.state, "why": str(refused), "help": refused.help}
            answer["detail"] = refused.detail
            answer["missing"] = refused.missing
            return answer
        except Exception as error:
            self._let_go()
            why = "{}: {}".format(type(error).__name__, error).replace("\n", " ")
            detail = traceback.format_exc() + captured_output.take(_STDOUT)
            return {"ok": False, "state": "failed", "why": why, "help": None, "detail": detail, "missing": []}

    def _answer(self) -> Json:
        if not self.job.get("compile_only"):
            self._refuse_early()
        self._memlock = _raise_memlock()
        directory = self.job.get("keep_in")
        folder = cache.open_folder(directory) if directory else None
        name = cache.name_of(self.job, self.spec) if folder is not None else None
        if folder is None or name is None:
            return self._compile_and_load()[1]
        kept = None if self.job.get("afresh") else cache.find(folder, name)
        if kept is not None:
            try:
                return self._load(kept)
            except Refused:
                self._let_go()  # a compile will tell what is wrong
        compiled, answer = self._compile_and_load()
        cache.keep(folder, name, compiled)
        return answer

    def _refuse_early(self) -> None:
        hopeless = attach.without_kprobes(self.spec["programs"])
        if hopeless:
            what = ", ".join(dict.fromkeys(one["measures"] for one in hopeless))
            refused = Refused("{}; it cannot measure {}".format(hopeless[0]["tried"][0]["why"], what), "unsupported")
            refused.missing = hopeless
            raise refused
        module = self.spec["probe"].get("module")
        if module and not modules.is_loaded(module):
            raise Refused("{} is not loaded; there is nothing of it to watch".format(module), "unsupported")

    def _compile_and_load(self) -> Tuple[Compiled, Json]:
        """With BTF-typed programs where they can be had, else the plain way, which also tells what is wrong."""
        from netconsole_collector.compile.compiler import Compiler

        compiler = Compiler(self.job, self.spec, self._memlock)
        try:
            if compiler.can_be_direct():
                try:
                    compiled = compiler.compile(direct=True)
                    return compiled, self._load(compiled)
                except Refused:
                    self._let_go()
            compiled = compiler.compile(direct=False)
            return compiled, self._load(compiled)
        finally:
            compiler.close()

    # ---- loading ----

    def _load(self, compiled: Compiled) -> Json:
        """Makes the maps, loads and attaches; raises Refused, with something left in ``descriptors``.

        With ``direct`` a program that can be BTF-typed has to be; the others are loaded as ever, and have to read the
        kernel by NC_READ alone: one that is refused spoils the attempt.
        """
        answer: Json = {
            "ok": True,
            "programs": [],
            "missing": [],
            "maps": {},
            "names": {"drop_reason": compiled.drop_reasons} if compiled.drop_reasons else {},
            "types": compiled.types,
            "facts": compiled.facts,
            "direct": compiled.direct,
        }
        if not self.job.get("compile_only"):  # of another kernel's types nothing can be loaded here
            answer["maps"] = self._maps(compiled)
            answer["programs"], answer["missing"] = self._programs(compiled, self._codes(compiled, answer["maps"]))
        answer["max_rss_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return answer

    def _maps(self, compiled: Compiled) -> Dict[str, int]:
        """Filters are in place before the first packet is seen: what they keep out must not be counted even once."""
        try:
            maps = make_maps(compiled)
        except OSError as error:
            raise no_maps(os.strerror(error.errno or 0), error.errno == errno.EPERM, self._memlock) from None
        if "config" in self.job and "nc_config" in maps:
            bpf_maps.Map(maps["nc_config"]).set(bytes(4), bytes.fromhex(self.job["config"]))
        return {name: self._give(fd) for name, fd in maps.items()}

    def _codes(self, compiled: Compiled, maps: Dict[str, int]) -> Dict[str, bytes]:
        numbers = {place: self.descriptors[index] for place, index in enumerate(maps.values())}
        return {name: with_maps(code, numbers) for name, code in compiled.functions.items()}

    def _programs(self, compiled: Compiled, codes: Dict[str, bytes]) -> Tuple[List[Json], List[Json]]:
        """What was attached, and what is missing without being required."""
        attached: List[Json] = []
        missing: List[Json] = []
        for entry in self.spec["programs"]:
            typed = compiled.direct and can_be_typed(entry, compiled.targets)
            choices = entry["attach"][:1] if typed else entry["attach"]
            one, tried = self._attach_one(compiled, codes, entry["name"], choices, typed)
            if one is not None:
                attached.append(one)
                continue
            missing.append({"name": entry["name"], "measures": entry.get("measures", entry["name"]), "tried": tried})
            is_spoilt = compiled.direct and (typed or any(one["detail"] for one in tried))
            if is_spoilt or entry.get("required", True):
                raise _missing_refusal(missing)
        if not attached:
            raise _missing_refusal(missing)
        return attached, missing

    def _attach_one(
        self, compiled: Compiled, codes: Dict[str, bytes], name: str, choices: List[Json], direct: bool
    ) -> Tuple[Optional[Json], List[Json]]:
        """The first alternative that works, else what was tried and why it did not."""
        tried: List[Json] = []
        for alternative in choices:
            point_text, function = alternative["point"], alternative["function"]
            try:
                point = attach.parse(point_text)
                when = alternative.get("when")
                if when and when not in compiled.facts:
                    raise attach.CannotAttach("this kernel has no {}".format(re.sub(r"^(HAVE|NARGS)_", "", when)))
                attach.check(point)
                misfit = compiled.misfits.get(prototypes.expected(point.name, alternative.get("takes", [])))
                if misfit:
                    raise attach.CannotAttach(misfit)
                if function not in codes:
                    raise attach.CannotAttach("function {} is not compiled on this kernel".format(function))
                typed = direct or point.kind in ("fentry", "fexit")
                target = compiled.targets[point_text] if typed else None
                program = _load_program(function, codes[function], point.kind, target, compiled.rdonly_cast)
                try:
                    link = attach.attach(point, program, typed)
                except attach.CannotAttach:
                    os.close(program)
                    raise
            except (attach.CannotAttach, ValueError) as error:
                tried.append({"point": point_text, "why": str(error), "detail": ""})
            except loading.LoadRefused as error:
                tried.append({"point": point_text, "why": "{}: {}".format(function, error), "detail": error.log})
            else:
                attached = {
                    "name": name,
                    "attach": point_text,
                    "program": self._give(program),
                    "link": self._give(link),
                }
                return attached, tried
        return None, tried

    def _give(self, fd: int) -> int:
        self.descriptors.append(fd)
        if len(self.descriptors) > MAX_DESCRIPTORS:
            raise Refused("more than {} maps and programs in one probe".format(MAX_DESCRIPTORS))
        return len(self.descriptors) - 1

    def _let_go(self) -> None:
        """An attempt that failed must not go on measuring while the next one is made."""
        for fd in self.descriptors:
            os.close(fd)
        self.descriptors = []


def _has_place(entry: Json, job: Json) -> bool:
    """False for a program of a module that is not loaded: there is nothing that it could miss."""
    if "module" not in entry:
        return True
    if job.get("btf"):
        return bool(btf.module_paths([entry["module"]], os.path.dirname(job["btf"])))
    return modules.is_loaded(entry["module"])


def _load_program(function: str, code: bytes, kind: str, target: Optional[int], rdonly_cast: int) -> int:
    """The program's descriptor; with a ``target`` (BTF id) it is a BTF-typed one. Raises programs.LoadRefused."""
    if target is None:
        plain = {"raw_tracepoint": loading.RAW_TRACEPOINT, "tracepoint": loading.TRACEPOINT}
        version = header_tree.version_code(os.uname().release)
        return loading.load(function, code, plain.get(kind, loading.KPROBE), version=version)
    if rdonly_cast:
        code = loading.link(code, {loading.RDONLY_CAST: rdonly_cast})
    typed = {"fentry": loading.TRACE_FENTRY, "fexit": loading.TRACE_FEXIT}
    return loading.load(function, code, loading.TRACING, typed.get(kind, loading.TRACE_RAW_TP), target)


def _missing_refusal(missing: List[Json]) -> Refused:
    tried = missing[-1]["tried"]
    loaded = [entry for entry in tried if entry["detail"]]
    why = "; ".join("{}: {}".format(e["point"], e["why"]) if e["point"] not in e["why"] else e["why"] for e in tried)
    refused = Refused("{} cannot be measured: {}".format(missing[-1]["measures"], why or "no attach point"))
    refused.state = "failed" if loaded else "unsupported"
    refused.detail = "\n".join(entry["detail"] for entry in loaded)
    refused.missing = missing
    return refused


def _raise_memlock() -> bool:
    """Kernels before 5.11 charge maps to RLIMIT_MEMLOCK. False when it could not be lifted and matters."""
    numbers = [int(number) for number in re.findall(r"\d+", os.uname().release)[:2]]
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        return tuple(numbers) >= _MEMLOCK_KERNEL
    return True
