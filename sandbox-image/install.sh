#!/bin/sh
# The two steps of the image build, run inside it as root:
#   packages LIST   install what the base lacks (nothing to do, and no network, on a base made from packages)
#   toolbox DIR     lock the toolbox and compile it; hand /etc/passwd and /etc/group over to it
set -eu

install_packages() {
    command -v dpkg >/dev/null || { echo "corral: this base is not of the Debian family" >&2; exit 1; }
    missing=
    for package in $(sed 's/#.*//' "$1"); do
        dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
    done
    if [ -n "$missing" ]; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q
        # shellcheck disable=SC2086  # a list of words
        apt-get install -q -y --no-install-recommends $missing
        apt-get clean
        rm -rf /var/lib/apt/lists/*
    fi
    /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "corral: the base needs Python 3.11 or newer")'
    # Only what the packages' own scripts left uncompiled: the toolbox must never compile anything at start.
    /usr/bin/python3 -m compileall -q -x 'lib2to3/tests|/test/|bad_' "$(/usr/bin/python3 -c 'import os; print(os.path.dirname(os.__file__))')" || true
    # One file to open instead of thirteen, at every start of every program that has a locale: 0.1 ms of a bash's 1.2.
    if command -v localedef >/dev/null && [ -d /usr/lib/locale/C.utf8 ]; then
        localedef --add-to-archive /usr/lib/locale/C.utf8
    fi
    # SECURITY: no set-id program is left to find (test_there_is_no_set_id_program); no-new-privileges is the second lock.
    find / -xdev -type f -perm /6000 -exec chmod a-s {} +
}

lock_toolbox() {
    # Unchecked bytecode: it is read without a look at its source. The sources stay for tracebacks.
    # Without docstrings and asserts, which no process at rest shall hold, under the name that a plain start looks for.
    /usr/bin/python3 -m compileall -q -f -o 2 --invalidation-mode unchecked-hash "$1"
    find "$1" -name '*.opt-2.pyc' | while read -r file; do mv "$file" "${file%.opt-2.pyc}.pyc"; done
    # SECURITY: root's, and nobody writes it (test_the_toolbox_is_roots_read_only_and_compiled).
    chown -R 0:0 "$1"
    find "$1" -type d -exec chmod 0555 {} +
    find "$1" -type f -exec chmod 0444 {} +
    mkdir -p /workspace /home
    # The root is read-only in a box and its user is known only at start: the toolbox writes both files on its tmpfs.
    ln -sfn /run/corral/passwd /etc/passwd
    ln -sfn /run/corral/group /etc/group
}

case "$1" in
    packages) install_packages "$2" ;;
    toolbox) lock_toolbox "$2" ;;
    *) echo "corral: unknown step $1" >&2; exit 2 ;;
esac
