#!/bin/sh
# headers.sh SOURCE_DIR CXX CC: every public header, and every header of src/core, compiles alone.
# The headers of src/core, which kernels share with run-time compilation, include no std header.
set -u
source_dir=$1 cxx=$2 cc=$3
cd "$source_dir" || exit 1
flags='-fsyntax-only -Wall -Wextra -Wpedantic -Werror -Iinclude'
checked=0 failed=0

check() { # LANGUAGE COMPILER... FILE: compiles a file that holds nothing but the #include
  language=$1 header=$2
  shift 2
  checked=$((checked + 1))
  # shellcheck disable=SC2086  # a list of flags
  if ! printf '#include "%s"\n' "$header" | "$@" $flags -x "$language" -; then
    echo "FAILED: $header as $language" >&2
    failed=$((failed + 1))
  fi
}

for header in $(find include -name '*.h' -o -name '*.hpp' | sort); do
  check c++ "${header#include/}" "$cxx" -std=c++20
done
check c strobe/strobe.h "$cc" -std=c11
check c++ strobe/strobe.h "$cxx" -std=c++11
for header in $(find src/core -name '*.h' | sort); do
  check c++ "$header" "$cxx" -std=c++20 -I. -Isrc
  if grep -nE '#include *<' "$header"; then
    echo "FAILED: $header includes a system header" >&2
    failed=$((failed + 1))
  fi
done
echo "$checked headers checked, $failed failures"
[ "$checked" -ge 5 ] && [ "$failed" = 0 ]
