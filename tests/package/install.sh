#!/bin/sh
# install.sh BUILD_DIR CONSUMER_DIR CMAKE CXX CC: installs, moves the installed tree, and builds and runs
# a C++ and a C program against it, with find_package and with pkg-config.
set -eu
build_dir=$1 consumer_dir=$2 cmake=$3 cxx=$4 cc=$5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$cmake" --install "$build_dir" --prefix "$scratch/first" >"$scratch/log"
prefix=$scratch/moved
mv "$scratch/first" "$prefix"
find "$prefix" -name LICENSE | grep -q . || { echo "FAILED: no licence installed" >&2; exit 1; }

echo "-- find_package"
"$cmake" -S "$consumer_dir" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc" >"$scratch/log"
"$cmake" --build "$scratch/build" >"$scratch/log" || { cat "$scratch/log"; exit 1; }
"$scratch/build/consumer_cpp"
"$scratch/build/consumer_c"

echo "-- pkg-config"
config=$(dirname "$(find "$prefix" -name strobe.pc)")
export PKG_CONFIG_PATH="$config"
flags=$(pkg-config --cflags --libs strobe)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir strobe)
export LD_LIBRARY_PATH
# shellcheck disable=SC2086  # a list of flags
"$cxx" -std=c++20 "$consumer_dir/consumer.cpp" $flags -o "$scratch/cpp"
# shellcheck disable=SC2086
"$cc" -std=c11 "$consumer_dir/consumer.c" $flags -o "$scratch/c"
"$scratch/cpp"
"$scratch/c"

if [ -e "$prefix/bin/strobe" ]; then
  echo "-- command line"
  env -u LD_LIBRARY_PATH "$prefix/bin/strobe" info >/dev/null
fi
