#!/usr/bin/env bash
# The README's two commands as a new user would run them: a fresh clone, no rights, nothing prepared.
# As root it becomes an unprivileged user first. Everything happens in one temporary directory, which goes at the end.
set -euo pipefail

say() { printf '%s\n' "readme: $*"; }
fail() { say "FAILED: $*"; exit 1; }

repository=$(git -C "$(dirname "$0")" rev-parse --show-toplevel)
if [ "$(id -u)" = 0 ]; then
  home=$(mktemp -d /tmp/locallb-user.XXXXXX)
  trap 'rm -rf "$home"' EXIT
  git clone --quiet "$repository" "$home/local-lb"
  chown -R 24680:24680 "$home"
  mapfile -t pip < <(env | grep -E '^(PIP_|SSL_CERT|HTTPS?_PROXY|https?_proxy)' || true) # how this machine reaches packages
  setpriv --reuid 24680 --regid 24680 --clear-groups env -i "${pip[@]}" HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin \
    TERM=dumb LANG=C.UTF-8 CI="${CI:-}" bash "$home/local-lb/tests/readme.sh" --inside
  exit
elif [ "${1:-}" != --inside ]; then
  home=$(mktemp -d /tmp/locallb-user.XXXXXX)
  trap 'rm -rf "$home"' EXIT
  git clone --quiet "$repository" "$home/local-lb"
  HOME="$home" XDG_STATE_HOME="$home/state" bash "$home/local-lb/tests/readme.sh" --inside
  exit
fi

cd "$(dirname "$0")/.."
state="${XDG_STATE_HOME:-$HOME/.local/state}/locallb"
trap 'make --silent down >/dev/null 2>&1 || true' EXIT

say "make up as $(id -u), in $(pwd)"
started=$SECONDS
make up
say "served after $((SECONDS - started)) s, setting everything up included"

.venv/bin/python tests/readme_check.py || fail "an address doesn't answer"
.venv/bin/locallb up --yes --expect-no-changes >up.log || { cat up.log; fail "a second up changes something"; }
grep -q "unchanged" up.log || fail "a second up doesn't say that nothing changed"
make status
make down
for left in "$state/proxies" "$state/ledger" .state/.pulumi/locks; do
  [ -z "$(find "$left" -type f -name '[!.]*' 2>/dev/null)" ] || fail "destroy left files in $left: $(find "$left" -type f)"
done
[ -z "$(find "$state/proxies" -mindepth 1 2>/dev/null)" ] || fail "destroy left $(ls "$state/proxies")"
for directory in /proc/[0-9]*/cwd; do # an Envoy's is its proxy's; other stacks of this user may serve
  case "$(readlink "$directory" || true)" in "$state"/proxies/*) fail "destroy left ${directory%/cwd}" ;; esac
done
say "make test"
. tests/tiers.sh
tier test
summary
passed
say "OK"
