#!/usr/bin/env bash
# Sees to it that PDF reports can be written: asks WeasyPrint, installs what it lacks where possible, else says what to
# install. Missing libraries are never an error: every other format works without them.
#
# usage: scripts/native-libraries.sh PYTHON      (the interpreter WeasyPrint is installed for)
set -euo pipefail
python=$1
packages=(libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core)

# WeasyPrint itself is asked, not the package manager: the libraries may come from anywhere.
# Prints: complete, or optional-missing (works, with a warning that harfbuzz-subset will be required), or missing.
pdf_support() {
    "$python" - 2>/dev/null <<'PROBE' || echo missing
import contextlib
import io
import warnings

with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
    warnings.simplefilter("always")
    import weasyprint  # OSError, after a banner on stdout, where a library is missing
print("optional-missing" if any("harfbuzz" in str(w.message).lower() for w in caught) else "complete")
PROBE
}

support=$(pdf_support)
if [ "$support" != complete ]; then
    "$(dirname "$0")/debian-packages.sh" "${packages[@]}" || true
    support=$(pdf_support)
fi
if [ "$support" = missing ]; then
    cat >&2 <<MESSAGE

PDF reports lack system libraries (Pango, HarfBuzz) and will be skipped; everything else works.
To have them, no new set-up needed:
    Debian, Ubuntu:  sudo apt-get install ${packages[*]}
    macOS:           brew install pango
    conda:           conda install -c conda-forge pango

MESSAGE
fi
