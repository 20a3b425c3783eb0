# Sourced by .ci/run and readme.sh: runs tiers of tests and remembers what a reader of the log wants to know at its end.
#
# Real kernels, kube-proxies and Envoys on few cores are late now and then: what fails is repeated once, alone, and a
# defect fails twice. What passes then is a defect all the same, of the test or of more, and `summary` names it:
# a line `flaky: FILE::TEST` for each, or `flaky: none`; a line `failed: FILE::TEST` for what failed twice.
tiers=() named=()

# skipped WHY: say that a tier doesn't run on this machine, here and at the end.
skipped() {
  step "SKIPPED: $1"
  tiers+=("SKIPPED    $1")
}

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

# tier TARGET [VARIABLE=VALUE...]: make a target; what fails there is repeated.
tier() { timed "make $*" twice "$@"; }

# timed NAME COMMAND...: run a command as a tier of its own, and take over the tests that its output names.
timed() {
  local name=$1 begun=$SECONDS output ended=0
  shift
  step "$name"
  output=$(mktemp)
  "$@" | tee "$output" || ended=$?
  tiers+=("$(printf '%7d s  %s' $((SECONDS - begun)) "$name")")
  mapfile -t -O "${#named[@]}" named < <(grep -aE '^(flaky|failed): .*::' "$output")
  rm -f "$output"
  return "$ended"
}

twice() {
  make "$@" && return
  local before ended=0
  before=$(failed)
  step "make $*: what failed, once more"
  make "$@" PYTEST_ARGS="-n 0 --last-failed --last-failed-no-failures none" || ended=$?
  comm -23 <(echo "$before") <(failed) | sed -n 's/..*/flaky: &/p'
  comm -12 <(echo "$before") <(failed) | sed -n 's/..*/failed: &/p'
  return "$ended"
}

# What pytest remembers as failed, a test a line.
failed() {
  python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")' 2>/dev/null <.pytest_cache/v/cache/lastfailed | sort || true
}

summary() {
  printf '\n== how long it took\n'
  printf '%s\n' "${tiers[@]}" "$(printf '%7d s  all' "$SECONDS")"
  printf '%s\n' "${named[@]}" | grep . | sort -u || true
  printf '%s\n' "${named[@]}" | grep -q '^flaky: ' || echo "flaky: none"
}
