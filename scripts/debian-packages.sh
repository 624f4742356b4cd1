#!/usr/bin/env bash
# Installs the Debian packages it is given where that can be done without asking (as root, with apt-get);
# elsewhere says why not. Exit status: 0 installed, 1 not.
set -euo pipefail

refuse() {
    echo "Not installed: $* ($reason)." >&2
    exit 1
}

if [ "${SYSTEM_PACKAGES:-yes}" = no ]; then
    reason="SYSTEM_PACKAGES=no was given"
    refuse "$@"
elif ! command -v apt-get >/dev/null; then
    reason="this system has no apt-get"
    refuse "$@"
elif [ "$(id -u)" -ne 0 ]; then
    reason="only root may install system packages"
    refuse "$@"
fi

# A machine without a network should hear so within a minute, not after apt's own long patience.
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 \
        -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=120 "$@"
}

install_packages() {
    apt install --yes --no-install-recommends "$@"
}

echo "Installing Debian packages: $*" >&2
# The first attempt fails on a fresh image, whose package lists are empty or old.
if ! install_packages "$@" >/dev/null 2>&1; then
    if ! { apt update && install_packages "$@"; } >&2; then
        reason="apt-get failed, see above"
        refuse "$@"
    fi
fi
