#!/bin/sh
# size.sh LIBRARY MB: the library without debug symbols is smaller than that many MB.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
strip -o "$scratch/library" "$1"
bytes=$(wc -c <"$scratch/library")
echo "$bytes bytes, of $2 MB"
[ "$bytes" -lt $(($2 * 1000000)) ]
