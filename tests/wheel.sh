#!/usr/bin/env bash
# A tier's tests against the installed wheel, as `make test-wheel` runs them: wheel.sh WHEEL TIER [PYTEST ARGUMENT...]
#
# They run in a directory elsewhere that has what Git has, but neither locallb/ nor components/, an environment of its
# own with the wheel in it, and the examples and deploy/ that the wheel has. Tests of the checkout itself are marked so.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1") tier=$2
shift 2

room=$(mktemp -d /tmp/locallb-wheel.XXXXXX)
chmod 755 "$room" # other users have a part in some tests
trap 'rm -rf "$room"' EXIT
git ls-files --cached --others --exclude-standard | grep -vE '^(locallb|components|examples|deploy)/' \
  | while read -r name; do [ ! -e "$name" ] || printf '%s\n' "$name"; done | tar -cf - -T - | tar -xf - -C "$room"
mkdir "$room/.cache"
for built in .cache/*; do # of the tiers that build Kubernetes: `make test-cluster` and others do that
  [ ! -e "$built" ] || ln -s "$(realpath "$built")" "$room/.cache/"
done

.venv/bin/python -m venv "$room/.venv"
cd "$room"
unset PYTHONPATH LOCALLB_BY_MAKE MAKEFLAGS MAKELEVEL
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$wheel"
touch .venv/runtime .venv/dev # for what tests make
shipped=$(.venv/bin/python -c 'import locallb; print(locallb.__path__[0])')/shipped
case "$shipped" in "$room/.venv/"*) ;; *) echo "locallb is imported from $shipped"; exit 1 ;; esac
cp -r "$shipped/examples" "$shipped/deploy" .

selected=$(.venv/bin/python -c "import sys; from tests.tiers import selections; print(selections(open('Makefile').read())[sys.argv[1]])" "$tier")
.venv/bin/python -m pytest -q -m "($selected) and not checkout" "$@"
