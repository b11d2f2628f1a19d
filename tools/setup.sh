#!/usr/bin/env bash
# Make the environment $VENV with mksknn (editable) in it, CHOLMOD included where it can be had.
# Called by the Makefile. Reads PYTHON, VENV and SUITESPARSE (yes or no).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
venv=${VENV:-.venv}
suitesparse=${SUITESPARSE:-yes}

source tools/common.sh

die() { say "$*" >&2; exit 1; }

has_package() { dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

# --- the environment -----------------------------------------------------------------------------

command -v "$python" >/dev/null || die "$python not found: Python 3.10 or later is needed"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$("$python" -V) is too old: 3.10 or later is needed (PYTHON=python3.x make ...)"

# Debian keeps ensurepip in a package of its own, so venv can be there and still fail. Without the
# right to install that package, a pip or virtualenv that is around can fill the environment.
make_venv() {
    if "$python" -c 'import ensurepip' 2>/dev/null || apt_install python3-venv; then
        "$python" -m venv --clear "$venv" && return
    fi
    if "$python" -m virtualenv --version >/dev/null 2>&1; then
        "$python" -m virtualenv --quiet --clear "$venv" && return
    fi
    "$python" -m venv --clear --without-pip "$venv" &&
        "$python" -m pip --quiet --python "$venv/bin/python" install pip
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    make_venv || die "cannot make $venv: install python3-venv (Debian) or virtualenv and try again"
fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

say "installing mksknn into $venv"
pip install --quiet --editable '.[plot,progress]'

# --- CHOLMOD -------------------------------------------------------------------------------------

header() {
    local dir
    for dir in ${SUITESPARSE_INCLUDE_DIR:+"$SUITESPARSE_INCLUDE_DIR"} \
        {/usr,/usr/local,/opt/homebrew}/include/suitesparse; do
        if [ -e "$dir/cholmod.h" ]; then
            echo "$dir/SuiteSparse_config.h"
            return
        fi
    done
    return 1
}

# SuiteSparse's version as one number, 7.4 -> 704.
version() {
    awk '$2 == "SUITESPARSE_MAIN_VERSION" { major = $3 }
         $2 == "SUITESPARSE_SUB_VERSION" { minor = $3 }
         END { print 100 * major + minor }' "$1"
}

has_cholmod() { "$venv/bin/python" -c 'import sksparse.cholmod' 2>/dev/null; }

# Leave CHOLMOD importable in the environment, or fail with the reason in $why.
install_cholmod() {
    local missing=() config log=$venv/scikit-sparse.log spec
    has_cholmod && return
    header >/dev/null || missing+=(libsuitesparse-dev)
    # scikit-sparse 0.5 has a C++ part.
    command -v gcc >/dev/null && command -v g++ >/dev/null || missing+=(gcc g++ libc6-dev)
    "$venv/bin/python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || missing+=(python3-dev)
    if [ ${#missing[@]} -gt 0 ] && ! apt_install "${missing[@]}"; then
        why="${missing[*]} missing and not installable from here"
        return 1
    fi
    config=$(header) || { why="no cholmod.h"; return 1; }
    # scikit-sparse 0.5 needs SuiteSparse 7.4; Debian 12 and Ubuntu 22.04 have 5.x.
    local specs=('scikit-sparse>=0.4.16,<0.5')
    [ "$(version "$config")" -ge 704 ] && specs=('scikit-sparse>=0.5' "${specs[@]}")
    for spec in "${specs[@]}"; do
        say "building $spec against $config (takes a minute or three)"
        pip install "$spec" >"$log" 2>&1 && has_cholmod && return
    done
    pip uninstall --quiet --yes scikit-sparse >/dev/null 2>&1 || true
    why="scikit-sparse does not build, see $log"
    return 1
}

# On the reference BLAS Debian falls back to, CHOLMOD is 4 to 12 times slower than on OpenBLAS.
# Any of the OpenBLAS packages will do.
install_openblas() {
    command -v dpkg-query >/dev/null || return 0
    local package
    for package in libopenblas0-{pthread,openmp,serial}; do
        has_package "$package" && return
    done
    apt_install libopenblas0-pthread ||
        say "OpenBLAS (libopenblas0-pthread) cannot be installed from here: CHOLMOD will be slower"
}

if [ "$suitesparse" = no ]; then
    why="SUITESPARSE=no"
elif install_cholmod; then
    install_openblas
    say "ready, log-determinants by CHOLMOD"
    exit
fi
say "ready without CHOLMOD ($why): log-determinants by SciPy, exact but slower on large data"
