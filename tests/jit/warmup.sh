#!/bin/sh
# warmup.sh STROBE: `strobe warmup` fills the cache, finds it filled, and says what is wrong. Exit status
# 77 (skipped) where there is no NVRTC or no kernel.
set -eu
strobe=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export STROBE_CACHE_DIR="$scratch/cache"

fail() {
  echo "FAILED: $1" >&2
  cat "$scratch/out" >&2
  exit 1
}
# expect CODE TEXT ARGUMENTS...: that exit status and that text, on stdout or stderr.
expect() {
  code=$1 text=$2
  shift 2
  got=0
  "$strobe" warmup "$@" >"$scratch/out" 2>&1 || got=$?
  [ "$got" = "$code" ] || fail "warmup $* exits with $got, not $code"
  grep -q -- "$text" "$scratch/out" || fail "warmup $* does not say '$text'"
}

expect 2 "no kernel has such a name" no_such_kernel --arch 90
expect 2 "'fast' is no architecture" --arch fast
expect 0 "" --list
name=$(tail -n 1 "$scratch/out")
if [ -z "$name" ]; then
  echo "there is no kernel yet"
  exit 77
fi
STROBE_NVRTC=/nonexistent expect 2 "STROBE_NVRTC=/nonexistent" "$name" --arch 80 --all
STROBE_CACHE_DIR='' expect 2 "no cache" "$name" --arch 80 --all
if ! "$strobe" warmup "$name" --arch 80 --all >"$scratch/out" 2>&1; then
  grep -q "no usable NVRTC" "$scratch/out" || fail "warmup $name"
  echo "there is no NVRTC"
  exit 77
fi
grep -q "$name: compiled in" "$scratch/out" || fail "nothing was compiled"
[ "$(find "$STROBE_CACHE_DIR" -type f | wc -l)" = 1 ] || fail "the cache holds something else"
expect 0 "$name: was in the cache" "$name" --arch 8.0 --all
: >"$scratch/file"
STROBE_CACHE_DIR="$scratch/file/cache" expect 3 "cannot be written" "$name" --arch sm_80 --all
