"""Compiles a probe's source with BCC against the kernel's own types. The only module that imports bcc."""

import ctypes
import os
import re
import struct
import sys
from typing import Any, Dict, List, Optional, Set

from netconsole_collector.compile import captured_output, type_files
from netconsole_collector.compile.compiled import (
    CAST,
    DIRECT,
    PLAIN,
    AttachTarget,
    Compiled,
    can_be_typed,
    is_needless,
    with_maps,
)
from netconsole_collector.compile.fake_maps import PretendedMaps
from netconsole_collector.compile.refused import BCC_HELP, ProbeRefused, no_maps
from netconsole_collector.kernel import attach, bpf_maps
from netconsole_collector.names import drop_reasons
from netconsole_collector.probe import config, device_sets
from netconsole_collector.probe.spec import wants_drop_reasons
from netconsole_collector.types import btf, header_tree, kernel_types, prototypes, real_headers, same_type, source_names
from netconsole_collector.types.btf import Btf
from netconsole_collector.types.copied_types import UnusableTypes

Json = Dict[str, Any]

_DEFAULT_ROWS = {"tables": 1024, "histograms": 8192, "records": 1024}
"""NC_ROWS_… of a manifest without max_rows (docs/reference/probes.md)."""


def definitions(spec: Json) -> Dict[str, int]:
    """Value by name. Raises ProbeRefused for what is no name in C."""
    found = {"NC_EVENTS": int(bool(spec.get("events")))}
    for section, default in _DEFAULT_ROWS.items():
        for name, table in spec.get(section, {}).items():
            found["NC_ROWS_" + _checked(section, name)] = int(table.get("max_rows", default))
    knobs = spec.get("knobs", {})
    for place, name in enumerate(config.own_names(knobs)):
        found["NC_KNOB_" + _checked("knobs", name)] = place
    for number, name in enumerate(device_sets.names_of(knobs), 1):
        found["NC_SET_" + _checked("knobs", name)] = number
    return found


def _checked(section: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise ProbeRefused("{} {!r}: not a name".format(section, name))
    return name


_INSTRUCTION = struct.Struct("=BBhi")
_CALL = 0x85
"""BPF_JMP | BPF_CALL; with 0 as its source register it calls a helper (include/uapi/linux/bpf.h)."""
_NEW_BY_OLD = {4: 113, 45: 115}
"""probe_read and probe_read_str: the same for kernel memory alone."""
_OLD_BY_NEW = {new: old for old, new in _NEW_BY_OLD.items()}


def for_kernel(code: bytes, types: Btf) -> bytes:
    """The code with the helpers that the kernel of these types has."""
    has_new = bool(kernel_types.facts(types, {"HAVE_BPF_FUNC_probe_read_kernel"}))
    helpers = _NEW_BY_OLD if has_new else _OLD_BY_NEW
    changed = bytearray(code)
    for offset in range(0, len(changed), _INSTRUCTION.size):
        operation, registers, jump, number = _INSTRUCTION.unpack_from(changed, offset)
        if operation == _CALL and registers == 0 and number in helpers:
            _INSTRUCTION.pack_into(changed, offset, operation, registers, jump, helpers[number])
    return bytes(changed)


_STDOUT = 1
_CFLAGS = ["-Werror=implicit-function-declaration", "-g0"]
"""BCC would only warn of the first, and fail at the call later. What debuggers need takes a fifth of a compile."""
_HEADERS = "linux-headers-{0} (Debian, Ubuntu), kernel-devel-{0} (Fedora, RHEL)"

_MODULES_HAVE_TYPES = "5.11"
_NO_TYPES_YET = "modules have them from Linux {} on".format(_MODULES_HAVE_TYPES)
_BUILT_WITHOUT = "it, or the module, was built without them (CONFIG_DEBUG_INFO_BTF_MODULES)"

_TYPE_IS_MISSING = (
    "incomplete type",
    "incomplete definition",
    "no member named",
    "undeclared identifier",
    "unknown type",
)


class Compiler:
    """Compiles for one job (worker.py). It reads the types once. Each way of loading needs its own compile."""

    def __init__(self, job: Json, spec: Json, memlock: bool) -> None:
        """``memlock``: False when locked memory is limited. Raises ProbeRefused without BCC or kernel types."""
        self.job = job
        self.spec = spec
        self._memlock = memlock
        self._facts: Dict[str, int] = {}
        self._btf: Optional[btf.Btf] = None
        self._is_own = False
        self._modules: List[str] = []
        self._prologue = ""
        self._drop_reasons: Dict[str, str] = {}
        self._directory: Optional[str] = None
        self._alternatives: List[Json] = [alternative for entry in spec["programs"] for alternative in entry["attach"]]
        self._bcc = _import_bcc()
        self._pretended: Optional[PretendedMaps] = None
        self._is_for_another = "btf_digest" in job
        if self._is_for_another:
            try:
                self._pretended = PretendedMaps()
            except OSError:
                pass  # BCC makes maps: who may not will be told
        try:
            self._types = self._kernel_types()
            self._targets = {one["point"]: self._target(attach.parse(one["point"])) for one in self._alternatives}
        except BaseException:
            self.close()
            raise

    def ways(self) -> List[str]:
        """In which ways it can be compiled, the one with the fewest calls of helpers first."""
        if self.job.get("plain") or not self._is_own:
            return [PLAIN]
        if self._rdonly_cast():
            return [CAST, PLAIN]
        return [DIRECT, PLAIN] if self._can_be_direct() else [PLAIN]

    def _can_be_direct(self) -> bool:
        """Whether every required program can be a BTF-typed raw tracepoint."""
        programs = [entry for entry in self.spec["programs"] if not is_needless(entry, self._facts)]
        required = [entry for entry in programs if entry.get("required", True)]
        return bool(required) and all(can_be_typed(entry, self._targets, self._facts) for entry in required)

    def compile(self, way: str) -> Compiled:
        """Raises ProbeRefused."""
        captured_output.take(_STDOUT)
        try:
            made = self._bcc.BPF(text=self._text(way).encode(), cflags=_CFLAGS)
        except Exception:
            raise self._refusal(captured_output.take(_STDOUT)) from None
        maps = self._maps(made)
        places = {fd: place for place, fd in enumerate(maps.values())}
        codes = {one["function"]: _code(made, one["function"]) for one in self._alternatives}
        if self._is_for_another and self._btf is not None:
            codes = {name: for_kernel(code, self._btf) for name, code in codes.items()}
        compiled = Compiled(
            functions={name: with_maps(code, places) for name, code in codes.items() if code},
            maps={name: self._size_of(fd) for name, fd in maps.items()},
            facts=self._facts,
            drop_reasons=self._drop_reasons,
            types=self._types,
            way=way,
            targets=self._targets,
            misfits=self._misfits(),
            rdonly_cast=self._rdonly_cast(),
        )
        made.cleanup()  # closes the maps that BCC has made: only their sizes are of use
        return compiled

    def close(self) -> None:
        """Removes the files that were made for the compiler."""
        if self._directory:
            header_tree.remove(self._directory)

    # ---- types and text ----

    def _kernel_types(self) -> str:
        """Makes the header tree. Returns "btf", "made" or "headers". Raises ProbeRefused when there is none of them."""
        source = self.job["source"]
        used = source_names.used(source) | {one["when"] for one in self._alternatives if "when" in one}
        used |= {one["unless"] for one in self.spec["programs"] if "unless" in one}
        try:
            files = type_files.of(self.job, self.spec)
            if not files:
                self._real_headers(used)
                return "headers"
            self._modules = files[1:]
            types = self._btf = btf.Btf(files[0], self._modules)
            lacking = type_files.lacking(self.spec, self._modules)
            of_bcc = source_names.bcc_names()
            same_type.refuse_doubled(types, source_names.records(source) - of_bcc, files)
        except btf.BtfError as error:
            help = type_files.how_to_make(self.job) if isinstance(error, UnusableTypes) else None
            raise ProbeRefused("the kernel's types cannot be used: {}".format(error), "unsupported", help) from None
        self._is_own = type_files.are_own(self.job, files)
        if not self._is_own:
            used = {name for name in used if not name.startswith("BTF_ID_")}  # they are the kernel's own numbers
        watched = self.spec["probe"].get("module", "").replace("-", "_")
        if watched in lacking and type_files.build_id(self.job, watched):  # it is not built in
            raise self._no_types_of(lacking)  # without them BCC's compiler may crash
        taken = of_bcc | source_names.defined(source) | header_tree.type_names()
        text = kernel_types.header(types, used, taken)
        facts = kernel_types.facts(types, used)
        self._facts = {line.split()[1]: int(line.split()[2]) for line in facts.splitlines()}
        if wants_drop_reasons(self.spec):
            self._drop_reasons = drop_reasons.from_btf(types)
        directory, vanishes = header_tree.private_directory()
        self._directory = None if vanishes else directory
        there = self.job.get("release", ""), self.job.get("machine", ""), self.job.get("page", 0)
        header_tree.write(directory, header_tree.files(text, *there))
        os.environ["BCC_KERNEL_SOURCE"] = directory
        if self.job.get("machine"):  # BCC takes registers and calling convention from this variable
            os.environ["ARCH"] = header_tree.architecture(self.job["machine"])
        return "btf" if self._is_own else "made"

    def _real_headers(self, used: Set[str]) -> None:
        """BCC finds the headers itself. Raises ProbeRefused when there are none."""
        root = self.job.get("headers") or real_headers.installed()
        if root is None:
            why = "the kernel has no BTF, and neither types that were made for it nor its headers are here"
            help = "install its headers: {}; or {}".format(
                _HEADERS.format(type_files.release_of(self.job)), type_files.how_to_make(self.job)
            )
            raise ProbeRefused(why, "unsupported", help)
        if "headers" in self.job:
            os.environ["BCC_KERNEL_SOURCE"] = root
        self._prologue = real_headers.prologue()

        def errors_of(text: str) -> str:
            captured_output.take(_STDOUT)
            try:
                self._bcc.BPF(text=text.encode(), cflags=[*_CFLAGS, "-ferror-limit=0"])
            except Exception:
                pass  # the errors are what we want to know
            return captured_output.take(_STDOUT)

        self._facts = real_headers.facts(used, root, errors_of)

    def _text(self, way: str) -> str:
        """Defines and the source; errors name file and line of what the author wrote."""
        values = {
            "NC_CPUS": int(self.job["cpus"]),
            "NC_RING": int(self.job["ring"]),
            "NC_DIRECT": int(way == DIRECT),
            "NC_CAST": int(way == CAST),
            "NC_PLAIN": int(bool(self.job.get("by_helpers"))),
        }
        values.update(definitions(self.spec))
        values.update(self._facts)
        defines = "\n".join("#define {} {}".format(name, value) for name, value in values.items())
        parts = [
            defines,
            self._prologue,
            '#line 1 "probe.bpf.c"',
            self.job["source"],
        ]
        return "\n".join(parts) + "\n"

    # ---- results ----

    def _maps(self, made: Any) -> Dict[str, int]:
        """Descriptors by name. They belong to ``made``."""
        library = self._bcc.lib
        library.bpf_table_name.restype = ctypes.c_char_p
        for call in (library.bpf_table_name, library.bpf_table_fd_id):
            call.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        tables = range(library.bpf_num_tables(made.module))
        return {
            library.bpf_table_name(made.module, table).decode(): library.bpf_table_fd_id(made.module, table)
            for table in tables
        }

    def _size_of(self, fd: int) -> bpf_maps.MapInfo:
        return self._pretended.made[fd] if self._pretended else bpf_maps.map_info(fd)._replace(id=0)

    def _misfits(self) -> Dict[str, str]:
        """Functions that do not have the arguments that a program expects. Only BTF can tell."""
        found = {}
        for alternative in self._alternatives:
            takes = alternative.get("takes", [])
            if takes and self._btf is not None:
                name = attach.parse(alternative["point"]).name
                problem = prototypes.problem(self._btf, name, takes)
                if problem:
                    found[prototypes.expected(name, takes)] = problem
        return found

    def _target(self, point: attach.Point) -> AttachTarget:
        """A tracepoint of vmlinux, or a function of vmlinux or of a module."""
        if self._btf is None or not self._is_own:
            return AttachTarget(0)
        if point.kind == "raw_tracepoint":
            return AttachTarget(self._btf.vmlinux_id("btf_trace_" + point.name, btf.TYPEDEF))
        found = self._btf.named(point.name, (btf.FUNC,))
        if not found:
            return AttachTarget(0)
        identifier, part = self._btf.own_id(found[0])
        module = os.path.basename(self._modules[part - 1]) if part else ""
        return AttachTarget(identifier, module, len(self._btf.parameter_types(found[0])))

    def _rdonly_cast(self) -> int:
        """Its BTF id. 0: this kernel has none (before 6.2)."""
        return self._btf.vmlinux_id("bpf_rdonly_cast", btf.FUNC) if self._btf is not None and self._is_own else 0

    def _refusal(self, log: str) -> ProbeRefused:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        no_map = next((line for line in lines if "could not open bpf map" in line), None)
        if no_map:
            is_forbidden = "not permitted" in no_map
            return no_maps(no_map.split("error: ", 1)[-1], is_forbidden, self._memlock, log)
        error = next((line for line in lines if " error: " in line), None)
        absent = type_files.absent(self.job, self.spec)
        is_type = bool(error) and any(words in str(error) for words in _TYPE_IS_MISSING)
        if is_type and absent:
            why = "the probe needs types of modules that are not loaded: {}".format(", ".join(absent))
            return ProbeRefused(why, "unsupported", "modprobe {}".format(" ".join(absent)), log)
        lacking = type_files.lacking(self.spec, self._modules) if is_type else []
        if lacking:
            return self._no_types_of(lacking, log)
        if error:
            return ProbeRefused("the probe does not compile on this kernel: {}".format(error), detail=log)
        return ProbeRefused(
            "BCC could not compile the probe: {}".format(lines[-1] if lines else "no reason given"), detail=log
        )

    def _no_types_of(self, lacking: List[str], log: str = "") -> ProbeRefused:
        release = type_files.release_of(self.job)
        of_modules = header_tree.version_code(release) >= header_tree.version_code(_MODULES_HAVE_TYPES)
        reason = _BUILT_WITHOUT if of_modules else _NO_TYPES_YET
        why = "this kernel has no types (BTF) of {}: {}".format(", ".join(lacking), reason)
        return ProbeRefused(why, "unsupported", type_files.how_to_make(self.job), log)


def _code(made: Any, function: str) -> bytes:
    """The code of a function. Empty when the source leaves it out on this kernel."""
    try:
        return made.dump_func(function.encode()) or b""
    except Exception:  # BCC raises Exception itself; older versions return None
        return b""


def _import_bcc() -> Any:
    try:
        import bcc
    except (ImportError, OSError) as error:  # OSError: the module is there, and its library is not
        raise ProbeRefused(
            "BCC is not installed for {}: {}".format(sys.executable, error), "unsupported", BCC_HELP
        ) from None
    # Attach points come only from the manifest, never from the name of a function.
    bcc.BPF._trace_autoload = lambda self: None
    return bcc
