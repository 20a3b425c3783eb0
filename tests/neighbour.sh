# Sourced by .ci/run: another user's stack, which serves the example from the default pool while everything is tested.
#
# As root: a clone of a user of its own, with a ledger for the whole host where there is none yet. Whoever isn't root
# can't be another user, and has none.
# Its number decides where it begins in the pool: at addresses of which no recorded home (tests/takeover) has one.
NEIGHBOUR=24695 neighbour=/tmp/locallb-neighbour.$$ shared=/var/lib/locallb

neighbour_up() {
  [ "$(id -u)" = 0 ] || { echo "only root can have a neighbour who is another user"; return 0; }
  mkdir "$neighbour" || return # somebody else's is nobody's home
  git clone --quiet . "$neighbour/local-lb"
  if [ ! -e "$shared" ]; then # as `host setup --yes` makes it
    install -d -m 3775 -g "$NEIGHBOUR" "$shared/ledger"
    touch "$neighbour/made-ledger"
  fi
  chown -R "$NEIGHBOUR:$NEIGHBOUR" "$neighbour"
  as_neighbour make up
}

neighbour_serves() {
  as_neighbour .venv/bin/locallb up --yes --expect-no-changes && as_neighbour .venv/bin/python tests/readme_check.py
}

neighbour_down() {
  [ -d "$neighbour" ] || return 0
  as_neighbour make down || true
  if [ -e "$neighbour/made-ledger" ]; then rmdir "$shared/ledger" "$shared" || ls -l "$shared/ledger"; fi
  rm -rf "$neighbour"
}

# as_neighbour COMMAND...: run it there, with nothing of our own surroundings but how packages are reached.
as_neighbour() {
  [ -d "$neighbour" ] || return 0
  local pip
  mapfile -t pip < <(env | grep -E '^(PIP_|SSL_CERT|HTTPS?_PROXY|https?_proxy)' || true)
  (cd "$neighbour/local-lb" && exec setpriv --reuid "$NEIGHBOUR" --regid "$NEIGHBOUR" --clear-groups \
    env -i "${pip[@]}" HOME="$neighbour" PATH=/usr/local/bin:/usr/bin:/bin TERM=dumb LANG=C.UTF-8 "$@")
}
