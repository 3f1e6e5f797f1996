# For the scripts ensure_*.sh, which source it after they have set NEEDS: whether programs are there, and installing packages
# without a question.

fail() {
    echo "$NEEDS: $1" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

can_be_root() {
    [ "$(id -u)" -eq 0 ] || { has sudo && sudo -n true 2>/dev/null; }
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}
