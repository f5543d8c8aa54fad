#!/bin/sh
# The command `netconsole`. Where far more wants to run than there are CPUs, Python alone takes seconds to start at the
# usual priority. A shell takes a tenth of that, so it raises the priority first. base/priority.py lowers it again.
case ${1-} in
'' | replay | --*)
    # Field 19 of a process's stat is its nice value (proc(5)): one that somebody has chosen stays.
    if [ -t 0 ] && [ -t 1 ] && read -r _ _ _ tasks _ </proc/loadavg && read -r cpus </sys/devices/system/cpu/online &&
        read -r _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ nice _ <"/proc/$$/stat"; then
        last=${cpus##*[-,]}
        [ "$nice" = 0 ] && [ "${tasks%/*}" -ge $((4 * (last + 1))) ] && renice -n -20 -p $$ >/dev/null &&
            export NETCONSOLE_RAISED=-20
    fi 2>/dev/null
    ;;
esac
# Python is beside the command, and not beside a link to it.
self=$0
if [ -h "$self" ] || [ "$self" = "${self##*/}" ]; then self=$(readlink -f "$self"); fi
python=${self%/*}/python3
[ -x "$python" ] || python=python3
# Python would look for modules in the current directory first (an empty entry of sys.path), and that may be anybody's.
# Until main() runs, Ctrl-C ends it as it ends a shell: Python would print a traceback. What imports comes after that,
# site too (-S), and it comes after the paths: it would make the current directory's entry one with a name.
exec "$python" -S -c 'import _signal, sys
if _signal.getsignal(2) is _signal.default_int_handler: _signal.signal(2, _signal.SIG_DFL)
sys.path[:] = [place for place in sys.path if place]
import site
site.main()
try:
    from netconsole.cli.start import main
except ModuleNotFoundError as error:
    if error.name != "netconsole":
        raise
    sys.exit("netconsole: this user cannot read where netconsole is installed. Run it as root, or install it for all.")
main()' "$@"
