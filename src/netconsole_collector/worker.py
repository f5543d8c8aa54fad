"""The compile worker: compiles one probe with BCC, loads and attaches it, hands every descriptor over, and is gone.

A job is {"spec", "source", "common", "cpus", "ring", "config"} (docs/collector.md); for tests also "btf" and "release"
of another kernel (or its "headers") with "compile_only", and "plain": no BTF-typed programs.

The only module that imports bcc. It lives for less than a second so that LLVM's memory (over 100 MB) goes with it.
Started by compile_job.py with two descriptors: a file with the job, and a Unix socket for the answer.
"""

import array
import ctypes
import json
import os
import re
import resource
import signal
import socket
import struct
import sys
import traceback
from typing import Any, Dict, List, Optional, Set, Tuple

from netconsole_collector import (
    attach,
    bpf,
    btf,
    drop_reasons,
    header_tree,
    kernel_modules,
    kernel_types,
    noise,
    programs,
    prototypes,
    real_headers,
    source_names,
)
from netconsole_collector.parent import on_parents_death

_STDOUT = 1
MAX_DESCRIPTORS = 253
"""SCM_MAX_FD of the kernel."""

_MEMLOCK_KERNEL = (5, 11)
_CFLAGS = ["-Werror=implicit-function-declaration"]
"""BCC would only warn, and stumble over the call later."""
_DEFAULT_ROWS = {"tables": 1024, "histograms": 8192}
"""NC_ROWS_… of a manifest without max_rows (docs/probes.md)."""
_NO_TYPES_HELP = "a kernel with CONFIG_DEBUG_INFO_BTF, or the package linux-headers-{}".format(os.uname().release)
_PRIVILEGES_HELP = "run it as root (sudo), or with CAP_BPF and CAP_PERFMON"
_BCC_HELP = "install the distribution's package: python3-bpfcc (Debian, Ubuntu), python3-bcc (Fedora, RHEL, SUSE)"

_TYPE_IS_MISSING = (
    "incomplete type",
    "incomplete definition",
    "no member named",
    "undeclared identifier",
    "unknown type",
)

Json = Dict[str, Any]


class Refused(Exception):
    """The probe cannot run; ``state`` is failed or unsupported, the message one sentence, ``detail`` the full text."""

    def __init__(self, why: str, state: str = "failed", help: Optional[str] = None, detail: str = "") -> None:
        super().__init__(why)
        self.missing: List[Json] = []  # programs that could not be attached, with what was tried
        self.state = state
        self.help = help
        self.detail = detail


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
        self.spec: Json = dict(job["spec"], programs=[entry for entry in job["spec"]["programs"] if _has_place(entry)])
        self.descriptors: List[int] = []
        self._facts: Dict[str, int] = {}
        self._btf: Optional[btf.Btf] = None
        self._prologue = ""
        self._drop_reasons: Dict[str, str] = {}
        self._directory: Optional[str] = None
        self._memlock = True
        self._compiled: List[Any] = []

    def run(self) -> Json:
        """The answer: {"ok": true, …} or {"ok": false, "state", "why", "help", "detail"}; never raises."""
        try:
            return self._load()
        except Refused as refused:
            self._close()
            answer = {"ok": False, "state": refused.state, "why": str(refused), "help": refused.help}
            answer["detail"] = refused.detail
            answer["missing"] = refused.missing
            return answer
        except Exception as error:
            self._close()
            why = "{}: {}".format(type(error).__name__, error).replace("\n", " ")
            detail = traceback.format_exc() + noise.take(_STDOUT)
            return {"ok": False, "state": "failed", "why": why, "help": None, "detail": detail, "missing": []}
        finally:
            self._remove_directory()

    def _load(self) -> Json:
        if not self.job.get("compile_only"):
            hopeless = attach.hopeless(self.spec["programs"])
            if hopeless:
                what = ", ".join(dict.fromkeys(one["measures"] for one in hopeless))
                refused = Refused(
                    "{}; it cannot measure {}".format(hopeless[0]["tried"][0]["why"], what), "unsupported"
                )
                refused.missing = hopeless
                raise refused
            module = self.spec["probe"].get("module")
            if module and not kernel_modules.is_loaded(module):
                raise Refused("{} is not loaded; there is nothing of it to watch".format(module), "unsupported")
        bcc = _import_bcc()
        self._memlock = _raise_memlock()
        types = self._kernel_types(bcc)
        attempt = None
        if self._direct_possible():
            try:
                attempt = self._attempt(bcc, direct=True)
            except Refused:  # the plain way will tell what is wrong
                self.descriptors = []
        attached, missing, maps = attempt or self._attempt(bcc, direct=False)
        return {
            "ok": True,
            "programs": attached,
            "missing": missing,
            "maps": maps,
            "names": {"drop_reason": self._drop_reasons} if self._wants_drop_reasons() else {},
            "types": types,
            "facts": self._facts,
            "direct": attempt is not None,
            "max_rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }

    def _direct_possible(self) -> bool:
        """Every program that is required can be a BTF-typed raw tracepoint, by its first choice."""
        if self.job.get("plain") or self._btf is None:
            return False
        required = [entry for entry in self.spec["programs"] if entry.get("required", True)]
        return bool(required) and all(self._can_be_typed(entry) for entry in required)

    def _can_be_typed(self, entry: Json) -> bool:
        point = attach.parse(entry["attach"][0]["point"])
        return point.kind == "raw_tracepoint" and self._btf_id(point) != 0

    def _attempt(self, bcc: Any, direct: bool) -> Tuple[List[Json], List[Json], Json]:
        """Compiles, loads and attaches: programs, missing ones, maps. Raises Refused.

        The source is compiled for one way or the other. With ``direct`` a program that can be BTF-typed has to be; the
        others are loaded as ever, and have to read the kernel by NC_READ alone: one that is refused spoils the attempt.
        """
        noise.take(_STDOUT)
        try:
            compiled = bcc.BPF(text=self._text(direct).encode(), cflags=_CFLAGS)
        except Exception:
            raise self._compile_refusal(noise.take(_STDOUT)) from None
        self._compiled.append(compiled)  # its maps live as long as this object
        maps = self._maps(bcc, compiled)
        if self.job.get("compile_only"):  # for another kernel's types: nothing of it can be loaded here
            return [], [], maps
        self._configure(maps)
        attached: List[Json] = []
        missing: List[Json] = []
        spoilt = False
        for entry in self.spec["programs"]:
            typed = direct and self._can_be_typed(entry)
            choices = entry["attach"][:1] if typed else entry["attach"]
            one, tried = self._attach_one(compiled, entry["name"], choices, typed)
            if one is not None:
                attached.append(one)
                continue
            missing.append({"name": entry["name"], "measures": entry.get("measures", entry["name"]), "tried": tried})
            spoilt = direct and (typed or any(one["detail"] for one in tried))
            if spoilt or entry.get("required", True):
                break
        if missing and (spoilt or not attached or self._is_required(missing[-1]["name"])):
            self._let_go(attached)
            raise _missing_refusal(missing)
        return attached, missing, maps

    def _is_required(self, name: str) -> bool:
        return any(entry["name"] == name and entry.get("required", True) for entry in self.spec["programs"])

    def _let_go(self, attached: List[Json]) -> None:
        """An attempt that failed must not go on measuring while the next one is made."""
        for one in attached:
            os.close(self.descriptors[one["link"]])
            os.close(self.descriptors[one["program"]])

    # ---- types and text ----

    def _kernel_types(self, bcc: Any) -> str:
        """Makes the header tree; returns "btf" or "headers". Raises Refused when there is neither."""
        path = self.job.get("btf", btf.VMLINUX)
        source = self.job["common"] + "\n" + self.job["source"]
        alternatives = [alternative for entry in self.spec["programs"] for alternative in entry["attach"]]
        used = source_names.used(source) | {
            alternative["when"] for alternative in alternatives if "when" in alternative
        }
        if not os.path.exists(path):
            self._real_headers(bcc, used)
            return "headers"
        wanted = self._modules() + (drop_reasons.MODULES if self._wants_drop_reasons() else [])
        types = self._btf = btf.Btf(path, btf.module_paths(sorted(set(wanted)), os.path.dirname(path)))
        taken = source_names.bcc_names() | source_names.defined(source) | header_tree.type_names()
        text = kernel_types.header(types, used, taken)
        facts = kernel_types.facts(types, used)
        self._facts = {line.split()[1]: int(line.split()[2]) for line in facts.splitlines()}
        if self._wants_drop_reasons():
            self._drop_reasons = drop_reasons.from_btf(types)
        directory, vanishes = header_tree.private_directory()
        self._directory = None if vanishes else directory
        header_tree.write(directory, header_tree.files(text, self.job.get("release", "")))
        os.environ["BCC_KERNEL_SOURCE"] = directory
        return "btf"

    def _real_headers(self, bcc: Any, used: Set[str]) -> None:
        """BCC finds them by itself; raises Refused when there are none."""
        root = self.job.get("headers") or real_headers.installed()
        if root is None:
            raise Refused("the kernel has no BTF and its headers are not installed", "unsupported", _NO_TYPES_HELP)
        if "headers" in self.job:
            os.environ["BCC_KERNEL_SOURCE"] = root
        self._prologue = real_headers.prologue()

        def errors_of(text: str) -> str:
            noise.take(_STDOUT)
            try:
                bcc.BPF(text=text.encode(), cflags=[*_CFLAGS, "-ferror-limit=0"])
            except Exception:
                pass  # what is not there is what we want to know
            return noise.take(_STDOUT)

        self._facts = real_headers.facts(used, root, errors_of)

    def _modules(self) -> List[str]:
        """Kernel modules whose types the probe names."""
        return [name for name in self.spec["probe"].get("btf_modules", []) if re.fullmatch(r"[\w-]+", name)]

    def _text(self, direct: bool) -> str:
        """Defines, the common header and the source; errors name file and line of what the author wrote."""
        values = {
            "NC_CPUS": int(self.job["cpus"]),
            "NC_RING": int(self.job["ring"]),
            "NC_EVENTS": int(bool(self.spec.get("events"))),
            "NC_DIRECT": int(direct),
        }
        for section, default in _DEFAULT_ROWS.items():
            for name, table in self.spec.get(section, {}).items():
                if not re.fullmatch(r"\w+", name):
                    raise Refused("{} {!r}: not a name".format(section, name))
                values["NC_ROWS_" + name] = int(table.get("max_rows", default))
        values.update(self._facts)
        defines = "\n".join("#define {} {}".format(name, value) for name, value in values.items())
        parts = [
            defines,
            self._prologue,
            '#line 1 "common"',
            self.job["common"],
            '#line 1 "probe.bpf.c"',
            self.job["source"],
        ]
        return "\n".join(parts) + "\n"

    def _wants_drop_reasons(self) -> bool:
        return '"drop_reason"' in json.dumps(self.spec)

    # ---- programs ----

    def _attach_one(
        self, compiled: Any, name: str, choices: List[Json], direct: bool
    ) -> Tuple[Optional[Json], List[Json]]:
        """The first alternative that works, else what was tried and why it did not."""
        tried: List[Json] = []
        for alternative in choices:
            point_text, function = alternative["point"], alternative["function"]
            try:
                point = attach.parse(point_text)
                when = alternative.get("when")
                if when and when not in self._facts:
                    raise attach.NotHere("this kernel has no {}".format(re.sub(r"^(HAVE|NARGS)_", "", when)))
                attach.check(point)
                self._check_prototype(point, alternative.get("takes", []))
                typed = direct or point.kind in ("fentry", "fexit")
                program = self._load_function(compiled, function, point, typed)
                try:
                    link = attach.attach(point, program, typed)
                except attach.NotHere:
                    os.close(program)
                    raise
            except (attach.NotHere, ValueError) as error:
                tried.append({"point": point_text, "why": str(error), "detail": ""})
            except programs.LoadRefused as error:
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

    def _check_prototype(self, point: attach.Point, takes: List[str]) -> None:
        """Raises attach.NotHere when the function does not take what the program expects; headers cannot tell."""
        if takes and self._btf is not None:
            problem = prototypes.problem(self._btf, point.name, takes)
            if problem:
                raise attach.NotHere(problem)

    def _load_function(self, compiled: Any, function: str, point: attach.Point, typed: bool) -> int:
        try:
            code = compiled.dump_func(function.encode())
        except Exception:  # BCC's own, of no class of its own; older ones give nothing back
            code = None
        if not code:
            raise attach.NotHere("function {} is not compiled on this kernel".format(function))
        if typed:
            kinds = {"fentry": programs.TRACE_FENTRY, "fexit": programs.TRACE_FEXIT}
            kind = kinds.get(point.kind, programs.TRACE_RAW_TP)
            if self._btf and "HAVE_bpf_rdonly_cast" in self._facts:
                cast = self._btf.vmlinux_id("bpf_rdonly_cast", btf.FUNC)
                code = programs.link(code, {programs.RDONLY_CAST: cast})
            return programs.load(function, code, programs.TRACING, kind, self._btf_id(point))
        plain = {"raw_tracepoint": programs.RAW_TRACEPOINT, "tracepoint": programs.TRACEPOINT}
        version = header_tree.version_code(os.uname().release)
        return programs.load(function, code, plain.get(point.kind, programs.KPROBE), version=version)

    def _btf_id(self, point: attach.Point) -> int:
        """The id by which the kernel knows a tracepoint or function of vmlinux; 0 when it is none."""
        if self._btf is None:
            return 0
        if point.kind == "raw_tracepoint":
            return self._btf.vmlinux_id("btf_trace_" + point.name, btf.TYPEDEF)
        return self._btf.vmlinux_id(point.name, btf.FUNC)

    def _maps(self, bcc: Any, program: Any) -> Json:
        library = bcc.lib
        library.bpf_table_name.restype = ctypes.c_char_p
        for call in (library.bpf_table_name, library.bpf_table_fd_id):
            call.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        maps = {}
        for number in range(library.bpf_num_tables(program.module)):
            name = library.bpf_table_name(program.module, number).decode()
            maps[name] = self._give(library.bpf_table_fd_id(program.module, number))
        return maps

    def _configure(self, maps: Json) -> None:
        """Filters are in place before the first packet is seen: what they keep out must not be counted even once."""
        if "config" in self.job and "nc_config" in maps:
            bpf.Map(self.descriptors[maps["nc_config"]]).set(bytes(4), bytes.fromhex(self.job["config"]))

    def _give(self, fd: int) -> int:
        self.descriptors.append(fd)
        if len(self.descriptors) > MAX_DESCRIPTORS:
            raise Refused("more than {} maps and programs in one probe".format(MAX_DESCRIPTORS))
        return len(self.descriptors) - 1

    def _close(self) -> None:
        """Everything ends with this process anyway; descriptors that were collected are simply not sent."""
        self.descriptors = []

    # ---- messages ----

    def _compile_refusal(self, log: str) -> Refused:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        no_map = next((line for line in lines if "could not open bpf map" in line), None)
        if no_map and "not permitted" in no_map:
            if not self._memlock:  # before 5.11 EPERM means this too
                why = "its maps do not fit the limit of locked memory, which could not be raised"
                return Refused(why, "unsupported", "ulimit -l unlimited, or CAP_SYS_RESOURCE", log)
            return Refused("no permission to make BPF maps", "unsupported", _PRIVILEGES_HELP, log)
        if no_map:
            return Refused("a map could not be made: {}".format(no_map.split("error: ", 1)[-1]), detail=log)
        error = next((line for line in lines if " error: " in line), None)
        absent = [name for name in self._modules() if not kernel_modules.is_loaded(name)]
        if error and absent and any(words in error for words in _TYPE_IS_MISSING):
            why = "its types are those of modules that are not loaded: {}".format(", ".join(absent))
            return Refused(why, "unsupported", "modprobe {}".format(" ".join(absent)), log)
        if error:
            return Refused("does not compile on this kernel: {}".format(error), detail=log)
        return Refused("BCC could not compile: {}".format(lines[-1] if lines else "it gave no reason"), detail=log)

    def _remove_directory(self) -> None:
        if self._directory:
            header_tree.remove(self._directory)


def _has_place(entry: Json) -> bool:
    """False for a program of a module that is not loaded: there is nothing that it could miss."""
    return "module" not in entry or kernel_modules.is_loaded(entry["module"])


def _missing_refusal(missing: List[Json]) -> Refused:
    tried = missing[-1]["tried"]
    loaded = [entry for entry in tried if entry["detail"]]
    why = "; ".join("{}: {}".format(e["point"], e["why"]) if e["point"] not in e["why"] else e["why"] for e in tried)
    refused = Refused("{} cannot be measured: {}".format(missing[-1]["measures"], why or "no attach point"))
    refused.state = "failed" if loaded else "unsupported"
    refused.detail = "\n".join(entry["detail"] for entry in loaded)
    refused.missing = missing
    return refused


def _import_bcc() -> Any:
    try:
        import bcc
    except ImportError as error:
        raise Refused(
            "BCC is not installed for {}: {}".format(sys.executable, error), "unsupported", _BCC_HELP
        ) from None
    # Attach points come from the manifest alone, never from the name of a function.
    bcc.BPF._trace_autoload = lambda self: None
    return bcc


def _raise_memlock() -> bool:
    """Kernels before 5.11 charge maps to RLIMIT_MEMLOCK. False when it could not be lifted and matters."""
    numbers = [int(number) for number in re.findall(r"\d+", os.uname().release)[:2]]
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        return tuple(numbers) >= _MEMLOCK_KERNEL
    return True
