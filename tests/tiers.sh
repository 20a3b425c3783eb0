# Sourced by .ci/run and readme.sh: runs tiers of tests and remembers what a reader of the log wants to know at its end.
#
# Real kernels, kube-proxies and Envoys on few cores are late now and then: what fails is repeated once, alone, and a
# defect fails twice. What passes then is a defect all the same, of the test or of more, and `summary` names it:
# a line `flaky: FILE::TEST` for each, or `flaky: none`; a line `failed: FILE::TEST` for what failed twice.
#
# A tier that fails keeps no later one from running: `summary` names it in a line `failed tier: NAME`, and the script
# ends with `passed`, which fails as the first of them did.
tiers=() named=() failed_as=0
trap 'exit 130' INT # or else the next tier would begin

remembered=.pytest_cache # where pytest remembers what failed
lane='' put_off='' live='' # of a lane: its name, the file of tiers to repeat later, where a line tells what it begins

# skipped WHY: say that a tier doesn't run on this machine, here and at the end.
skipped() {
  step "SKIPPED: $1"
  tiers+=("SKIPPED    $1")
}

step() {
  printf '\n== %s (after %d s)\n' "$1" "$SECONDS"
  if [ -n "$lane" ]; then printf -- '-- %s: %s (after %d s)\n' "$lane" "$1" "$SECONDS" >&"$live"; fi
}

# tier [-C DIRECTORY] TARGET [VARIABLE=VALUE...]: make a target; what fails there is repeated.
tier() { timed "make $*" twice "$@"; }

# timed NAME COMMAND...: run a command as a tier of its own, and take over the tests that its output names. Its failure
# is remembered, and the script goes on.
timed() {
  local name=$1 begun=$SECONDS used output ended=0
  shift
  step "$name"
  output=$(mktemp)
  processor_seconds "$output"
  used=$seconds
  "$@" | tee "$output" || ended=$?
  mapfile -t -O "${#named[@]}" named < <(grep -aE '^(flaky|failed): .*::' "$output")
  processor_seconds "$output"
  tiers+=("$(printf '%7d s %7d s  %s' $((SECONDS - begun)) $((seconds - used)) "$name")")
  rm -f "$output"
  if [ "$ended" != 0 ]; then named+=("failed tier: $name"); fi
  remember "$ended"
}

# processor_seconds FILE: set `seconds` to the processor time of what this shell has waited for; FILE is overwritten.
processor_seconds() {
  times >"$1"
  seconds=$(awk 'NR == 2 { gsub("s", ""); for (i = 1; i <= NF; i++) { split($i, t, "m"); sum += t[1] * 60 + t[2] }; print int(sum) }' "$1") || seconds=0
}

# remember EXIT_CODE: be the script's, if it is the first that tells of a failure.
remember() {
  if [ "$failed_as" = 0 ]; then failed_as=$1; fi
}

# passed: fail if a tier failed.
passed() { return "$failed_as"; }

# side_by_side LANE...: run functions at the same time, each a lane of tiers one after the other. Each lane's output is
# printed whole, in the order of their names here. All run to their ends, whatever fails in another; what fails in a
# lane's tiers is repeated when all have ended: alone.
side_by_side() {
  local place each words ended pids=()
  place=$(mktemp -d)
  step "side by side: $*"
  exec {live}>&1
  for each; do
    in_lane "$each" "$place/$each" >"$place/$each.output" 2>&1 &
    pids+=($!)
  done
  for each; do
    ended=0
    wait "${pids[0]}" || ended=$?
    pids=("${pids[@]:1}")
    cat "$place/$each.output"
    mapfile -t -O "${#tiers[@]}" tiers < <(grep . "$place/$each.tiers")
    mapfile -t -O "${#named[@]}" named < <(grep . "$place/$each.named")
    if [ "$ended" != 0 ] && ! grep -q '^failed tier: ' "$place/$each.named"; then named+=("failed tier: $each"); fi
    remember "$ended"
  done
  exec {live}>&-
  while read -r -a words <&3; do
    remembered=.pytest_cache/$(target "${words[@]}")
    timed "make ${words[*]}: what failed, once more" again "${words[@]}"
  done 3< <(cat "$place"/*.again 2>/dev/null)
  remembered=.pytest_cache
  rm -rf "$place"
}

# in_lane LANE FILE: be a lane, and leave in files of that name what it has to tell.
in_lane() {
  trap - QUIT # or else all that it starts ignores them
  trap 'exit 130' INT
  lane=$1 put_off=$2.again tiers=() named=() failed_as=0 told=$2
  trap 'printf "%s\n" "${tiers[@]}" >"$told.tiers"; printf "%s\n" "${named[@]}" >"$told.named"' EXIT
  "$1"
  passed
}

twice() {
  if [ -n "$lane" ]; then remembered=.pytest_cache/$(target "$@"); fi
  made "$@" && return
  if [ -z "$lane" ]; then
    step "make $*: what failed, once more"
    again "$@"
  else
    echo "$*" >>"$put_off"
    step "make $*: failed, and is repeated when no other tier runs"
  fi
}

# again [-C DIRECTORY] TARGET [VARIABLE=VALUE...]: repeat what failed, and name it.
again() {
  local before ended=0
  before=$(failed "$@")
  made "$@" PYTEST_ARGS="-n 0 --last-failed --last-failed-no-failures none" || ended=$?
  comm -23 <(echo "$before") <(failed "$@") | sed -n 's/..*/flaky: &/p'
  comm -12 <(echo "$before") <(failed "$@") | sed -n 's/..*/failed: &/p'
  return "$ended"
}

made() {
  if [ "$remembered" = .pytest_cache ]; then make "$@"; else PYTEST_ADDOPTS="-o cache_dir=$remembered" make "$@"; fi
}

# target [-C DIRECTORY] TARGET...: tell the target.
target() {
  if [ "$1" = -C ]; then shift 2; fi
  echo "$1"
}

# failed [-C DIRECTORY] TARGET...: what pytest remembers as failed there, a test a line.
failed() {
  local place=.
  if [ "$1" = -C ]; then place=$2; fi
  python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")' 2>/dev/null <"$place/$remembered/v/cache/lastfailed" | sort || true
}

summary() {
  local written
  written=$(mktemp)
  processor_seconds "$written"
  rm -f "$written"
  printf '\n== how long it took, and how much processor time\n'
  printf '%s\n' "${tiers[@]}" "$(printf '%7d s %7d s  all' "$SECONDS" "$seconds")"
  printf '%s\n' "${named[@]}" | grep . | sort -u || true
  printf '%s\n' "${named[@]}" | grep -q '^flaky: ' || echo "flaky: none"
}
