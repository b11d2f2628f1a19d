# What the scripts in this folder share.

say() { printf 'mksknn set-up: %s\n' "$*"; }

# Install Debian packages; false where there is no apt-get, no right to use it, or no network.
apt_install() {
    command -v apt-get >/dev/null || return 1
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || return 1
        root=(sudo -n)
    fi
    local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    say "installing Debian packages: $*"
    # A stale package list may still do, so only the second failure counts.
    "${apt[@]}" update >/dev/null 2>&1 || true
    "${apt[@]}" install --no-install-recommends "$@" >/dev/null 2>&1
}
