# Writes docs/kernel_rows.md from rows.tsv, or with CHECK compares: exactly, if the same version of nvcc made
# both; else the rows alone, since other versions use other registers.
#   cmake -D ROWS=<rows.tsv, or empty> -D DEF=<kernels.def> -D TABLE=<docs/kernel_rows.md> [-D CHECK=1] -P ...
cmake_minimum_required(VERSION 3.25)
function(render rows result)
  file(STRINGS ${rows} lines)
  list(POP_FRONT lines version)
  set(text
"# Kernel rows

What ptxas says of each row of `src/cuda/kernels.def`; written by `cmake --build --preset release --target kernel-table`.
A row that spills is explained in `src/cuda/spills.txt`. Compiler: ${version}.

| row | architecture | registers | spilled bytes | stack bytes | static shared bytes | cubin bytes |
|---|---|---|---|---|---|---|
")
  foreach(line IN LISTS lines)
    string(REPLACE "\t" " | " line "${line}")
    string(APPEND text "| ${line} |\n")
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

if(NOT CHECK)
  render(${ROWS} text)
  file(WRITE ${TABLE} "${text}")
  return()
endif()

file(READ ${TABLE} committed)
set(remedy "Run: cmake --build --preset release --target kernel-table")
file(STRINGS ${DEF} wanted REGEX "^STROBE_ROW")
list(TRANSFORM wanted REPLACE "^[^(]*\\(([a-z0-9_]+),.*" "\\1")
string(REGEX MATCHALL "\n\\| [a-z0-9_]+ \\| sm_" have "${committed}")
list(TRANSFORM have REPLACE "\n\\| ([a-z0-9_]+) .*" "\\1")
list(REMOVE_DUPLICATES have)
if(NOT "${have}" STREQUAL "${wanted}")
  message(FATAL_ERROR "${TABLE} lists other rows than ${DEF}:\n${have}\n${wanted}\n${remedy}")
endif()
if(ROWS)
  render(${ROWS} text)
  string(REGEX MATCH "Compiler: [^\n]*" version "${text}")
  string(FIND "${committed}" "${version}" same_version)
  if(same_version GREATER_EQUAL 0 AND NOT "${committed}" STREQUAL "${text}")
    message(FATAL_ERROR "${TABLE} is not what this build gives. ${remedy}")
  endif()
endif()
