#!/bin/sh
# symbols.sh LIBRARY STROBE_H: the library exports the functions of strobe.h, all of them and nothing
# else, and does not need libfmt at run time.
set -eu
library=$1 header=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

nm -D --defined-only "$library" | sed 's/@.*//' | awk '$2 != "A" { print $3 }' | sort >"$scratch/exported"
sed -n 's/^STROBE_API.*[ *]\(strobe_[a-z_0-9]*\)(.*/\1/p' "$header" | sort >"$scratch/declared"
[ -s "$scratch/declared" ] || { echo "FAILED: no declarations found in $header" >&2; exit 1; }
diff -u --label declared --label exported "$scratch/declared" "$scratch/exported" || {
  echo "FAILED: $library must export what strobe.h declares" >&2
  exit 1
}
if objdump -p "$library" | grep 'NEEDED.*libfmt'; then
  echo "FAILED: $library needs libfmt at run time" >&2
  exit 1
fi
echo "$(wc -l <"$scratch/exported") exported functions"
