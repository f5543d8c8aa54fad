"""--doctor: tries what this host can do, and prints it as one JSON document."""

import json
import os
import select
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, TextIO

from netconsole_collector import VERSION, capabilities
from netconsole_collector.compile import received_programs
from netconsole_collector.compile.job import CompileJob
from netconsole_collector.host import host
from netconsole_collector.kernel import cpus
from netconsole_collector.load_queue import MAX_WORKERS
from netconsole_collector.probe import config
from netconsole_collector.probe.spec import spec_problem, wants_drop_reasons
from netconsole_collector.sources.base import SourceError
from netconsole_collector.sources.known import KNOWN, is_source

SCHEMA = "netconsole.collector-doctor/1"
WITHOUT_BPF = "read without BPF"
NO_NAMES = "headers do not tell the names of drop reasons: they are shown as numbers"
BY_HELPERS = "its programs read the kernel by calls of helpers, at several times the cost: {}"
NO_REASONS = "this kernel gives no drop reasons (before 5.17): they are inferred from where it drops, or unknown"
EXIT_WRONG_INPUT = 2
EXIT_NOTHING_RUNS = 3

Json = Dict[str, Any]


def doctor(
    stdin: TextIO,
    stdout: TextIO,
    python: Optional[str],
    keep_in: Optional[str] = None,
    silence_s: Optional[float] = None,
    has_progress: bool = False,
) -> int:
    """Compiles and attaches each load command of a JSON list, and detaches it again.

    ``silence_s``: the list is one line, and it ends when then nothing comes for so long. ``has_progress``: before the
    document there is a line {"trying": NAME} for each probe, and {"tried": NAME, "state"} after it. Returns 3 when none
    could run, 2 for bad input.
    """

    telling = threading.Lock()

    def tell(told: Json) -> None:
        if has_progress and found["privileges"]["ok"] and found["bcc"]["ok"]:  # else each is refused at once
            with telling:
                stdout.write(json.dumps(told) + "\n")
                stdout.flush()

    def tried(command: Json) -> Json:
        if is_source(command.get("spec", {})):
            return _opened(command["spec"])
        name = command.get("probe", "?")
        tell({"trying": name})
        answer = _try(command, python, found, keep_in)
        tell({"tried": name, "state": answer["state"]})
        return answer

    commands = _commands(stdin, is_line=silence_s is not None)
    if silence_s is not None:
        threading.Thread(target=_end_with, args=(stdin.fileno(), silence_s), daemon=True).start()
    if commands is None:
        sys.stderr.write("standard input: expected a JSON list of load commands\n")
        return EXIT_WRONG_INPUT
    found = capabilities.all_of(python, is_thorough=True)
    with ThreadPoolExecutor(MAX_WORKERS) as pool:
        answers = pool.map(tried, commands)
        probes = {command.get("probe", "?"): answer for command, answer in zip(commands, answers)}
    document = {"schema": SCHEMA, "version": VERSION, "host": host(), "capabilities": found, "probes": probes}
    json.dump(document, stdout, indent=1)
    stdout.write("\n")
    can_run = found["privileges"]["ok"] and found["bcc"]["ok"] and found["btf"]["ok"]
    loaded = [probe for probe in probes.values() if probe["programs"] and probe["state"] in ("attached", "degraded")]
    return 0 if can_run and (loaded or not probes) else EXIT_NOTHING_RUNS


def _end_with(fd: int, silence_s: float) -> None:
    """Ends this process when the other side has gone, or sends nothing more."""
    while select.select([fd], [], [], silence_s)[0]:
        if not os.read(fd, 4096):
            break
    os._exit(1)


def _commands(stdin: TextIO, is_line: bool) -> Optional[List[Json]]:
    """The load commands on standard input; None when it is no list of objects."""
    if stdin.isatty():
        return []
    try:
        text = next((line for line in stdin if line.strip()), "") if is_line else stdin.read().strip()
        commands = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(commands, list) and all(isinstance(command, dict) for command in commands)
    return commands if is_list else None


def _try(command: Json, python: Optional[str], found: Json, keep_in: Optional[str]) -> Json:
    """One probe: {"state", "why", "help", "programs": [{"name", "attach", "why", "tried"}]}."""
    problem = spec_problem(command.get("spec", {}))
    if problem:
        return _refused("failed", "spec: {}".format(problem), [])
    for name in ("privileges", "bcc"):
        if not found[name]["ok"]:
            return _refused("unsupported", found[name]["why"], [])
    try:
        packed = config.pack("summary", {"device": (command.get("knobs") or {}).get("device", "")})
    except config.KnobError as error:
        return _refused("failed", str(error), [])
    job = {key: command.get(key, "") for key in ("spec", "source")}
    job.update(
        cpus=cpus.nr_cpu_ids(), ring=found["ring_buffer"]["ok"], keep_in=keep_in, config=packed.hex(), explains=True
    )
    answer = _answer(dict(job, compiled=command.get("compiled")), python)
    missing = [{"name": one["name"], "attach": None, "tried": one["tried"]} for one in answer["missing"]]
    if not answer["ok"]:
        refused = _refused(answer["state"], answer["why"], missing)
        refused.update(help=answer["help"], detail=answer["detail"])
        return refused
    attached = [_attached(one) for one in answer["programs"]]
    for program in answer["programs"]:
        os.close(program["link"])
        os.close(program["program"])
    for fd in answer["maps"].values():
        os.close(fd)
    lacks = ["{} is not measured".format(one["measures"]) for one in answer["missing"]]
    notes = []
    if wants_drop_reasons(command["spec"]) and not answer["names"].get("drop_reason"):
        notes.append(NO_NAMES if answer["types"] == "headers" else NO_REASONS)
    if answer["cheaper_refused"]:
        notes.append(BY_HELPERS.format(answer["cheaper_refused"]))
    return {
        "state": "degraded" if missing else "attached",
        "why": "; ".join(lacks + notes) or None,
        "notes": notes,
        "help": None,
        "types": answer["types"],
        "programs": attached + missing,
    }


def _opened(spec: Json) -> Json:
    """The same of a source: whether there is what it reads."""
    source = KNOWN[spec["probe"]["source"]]()
    try:
        source.open()
    except SourceError as error:
        return dict(_refused(error.state, str(error), []), help=error.help)
    finally:
        source.close()
    return _refused("attached", WITHOUT_BPF, [])


def _attached(program: Json) -> Json:
    """ "tried" are the cheaper kinds of program on the same function, and why the kernel has refused them."""
    tried = [{"point": one["point"], "why": one["why"]} for one in program["refused"]]
    return {"name": program["name"], "attach": program["attach"], "tried": tried}


def _answer(job: Json, python: Optional[str]) -> Json:
    if python is None:
        return received_programs.load(job)
    worker = CompileJob(job, python)
    while not worker.advance():
        select.select([worker], [], [], 1.0)
    return worker.answer or {}


def _refused(state: str, why: str, programs: List[Json]) -> Json:
    return {"state": state, "why": why, "help": None, "programs": programs}
