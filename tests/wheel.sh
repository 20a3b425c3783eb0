#!/usr/bin/env bash
# Build the wheel, and make a room for tests of it: a directory elsewhere that has what Git has, but neither locallb/ nor
# components/, an environment of its own with the wheel in it, and the examples and deploy/ that the wheel has. Tiers run
# there as in the checkout (`make -C ROOM test-slow`), but for tests marked `checkout` (`tests/tiers.py`).
#   tests/wheel.sh ROOM
set -euo pipefail
cd "$(dirname "$0")/.."
room=$(realpath "$1")
unset PYTHONPATH
make --no-print-directory wheel

chmod 755 "$room" # other users have a part in some tests
git ls-files --cached --others --exclude-standard | grep -vE '^(locallb|components|examples|deploy)/' \
  | while read -r name; do [ ! -e "$name" ] || printf '%s\n' "$name"; done | tar -cf - -T - | tar -xf - -C "$room"
cp -r dist "$room/dist"
mkdir -p .cache # what tiers build is shared with the checkout
ln -s "$(realpath .cache)" "$room/.cache"

# Libraries are copied, as pip would install the very same once more. It checks that the wheel needs no others.
.venv/bin/python -m venv "$room/.venv"
libraries='import sysconfig; print(sysconfig.get_path("purelib"))'
place=$("$room/.venv/bin/python" -c "$libraries")
tar -C "$(.venv/bin/python -c "$libraries")" --exclude='./__editable__*' --exclude='./local_lb-*' -cf - . | tar -xf - -C "$place"
"$room/.venv/bin/python" -m pip install --quiet --disable-pip-version-check "$room"/dist/*.whl
touch "$room/.venv/runtime" "$room/.venv/dev" # for make
shipped=$(cd "$room" && .venv/bin/python -c 'import locallb; print(locallb.__path__[0])')/shipped
[ "$shipped" = "$place/locallb/shipped" ] || { echo "locallb is imported from $shipped"; exit 1; }
cp -r "$shipped/examples" "$shipped/deploy" "$room"
