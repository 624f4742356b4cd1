#!/usr/bin/env bash
# Makes, completes or updates the virtual environment of the make targets. The last thing it writes is VENV/.stamp,
# so that one which failed or was interrupted is taken up again by the next make.
#
# usage: scripts/set-up-environment.sh VENV [PYTHON]      (PYTHON defaults to python3.11, else python3)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
wanted=${2:-}
stamp=$venv/.stamp
unfinished=$venv/.unfinished

# Two makes at once would unpack into one directory. The second waits, then finds the stamp.
# constraints.txt serves as the lock file because it is always there; nothing is written to it.
if [ -z "${PERF_DIAGNOSTICS_HOLDS_LOCK:-}" ] && command -v flock >/dev/null; then
    flock --nonblock constraints.txt true || echo "Another make is setting up this checkout; waiting for it." >&2
    PERF_DIAGNOSTICS_HOLDS_LOCK=yes exec flock --close constraints.txt "$0" "$@"
fi
if [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ]; then
    exit 0
fi

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

choose_python() {
    local candidate candidates=(python3.11 python3) seen=()
    if [ -n "$wanted" ]; then
        candidates=("$wanted")
    fi
    for candidate in "${candidates[@]}"; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
        seen+=("$candidate: $("$candidate" --version 2>/dev/null || echo "not found")")
    done
    {
        echo "perf-diagnostics needs CPython 3.11 or newer; looked for:"
        printf '    %s\n' "${seen[@]}"
        echo "Install python3.11 and python3.11-venv, or name an interpreter: make setup PYTHON=/path/to/python3.12"
    } >&2
    return 1
}

make_virtual_environment() {
    local python
    python=$(choose_python)
    mkdir -p "$venv"
    touch "$unfinished"
    # An attempt that was interrupted may have left half a package behind.
    find "$venv" -mindepth 1 -maxdepth 1 ! -name .unfinished -exec rm -rf {} +
    echo "Making $venv with $("$python" --version). This happens once and takes a few minutes." >&2
    "$python" -m venv "$venv"
}

if [ -z "$(ls -A "$venv" 2>/dev/null)" ] || [ -e "$unfinished" ]; then
    make_virtual_environment
elif ! new_enough "$venv/bin/python"; then
    echo "$venv exists, but $venv/bin/python does not run or is older than 3.11." \
        "Remove $venv, or give another place: make setup VENV=other" >&2
    exit 1
fi

# Dependency groups need pip 25.1; a fresh environment of CPython 3.11 has an older one.
"$venv/bin/python" -m pip install --no-input --disable-pip-version-check --constraint constraints.txt pip
"$venv/bin/python" -m pip install --no-input --disable-pip-version-check --no-compile \
    --constraint constraints.txt --build-constraint constraints.txt --editable . --group dev
# Python compiles what is imported, a fifth of 17,000 files, and keeps it: 11 s, where all of them take 38. Where it is
# not to keep it, each process would do so anew; a file of another Python's syntax, of which some packages have
# templates, is left as it is.
if [ -n "${PYTHONDONTWRITEBYTECODE:-}" ]; then
    "$venv/bin/python" -m compileall -q -q -j 0 "$venv/lib" || true
fi
scripts/native-libraries.sh "$venv/bin/python"
rm -f "$unfinished"
touch "$stamp"
