# Assembles the PTX of one row and writes what ptxas says of it to CUBIN.info, as one line:
#   name, architecture, registers, spilled bytes (stores + loads), stack bytes, static shared bytes, cubin bytes
cmake_minimum_required(VERSION 3.25)
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
execute_process(
  COMMAND ${NVCC} -cubin -gencode arch=${VIRTUAL},code=${REAL} -Xptxas -v ${flags} -o ${CUBIN} ${PTX}
  RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_VARIABLE text)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${text}")
endif()
string(REGEX MATCHALL "(warning|error)[^\n]*" warnings "${text}")
foreach(warning IN LISTS warnings)
  message("${NAME} ${REAL}: ${warning}")
endforeach()

if(NOT text MATCHES "Used ([0-9]+) registers")
  message(FATAL_ERROR "${NAME} ${REAL}: ptxas reports no registers:\n${text}")
endif()
set(registers ${CMAKE_MATCH_1})

# Sums over the entry point and the functions that it calls; a kind that is not mentioned is 0.
function(total variable pattern)
  set(sum 0)
  string(REGEX MATCHALL "[0-9]+ bytes ${pattern}" matches "${text}")
  foreach(match IN LISTS matches)
    string(REGEX MATCH "^[0-9]+" bytes "${match}")
    math(EXPR sum "${sum} + ${bytes}")
  endforeach()
  set(${variable} ${sum} PARENT_SCOPE)
endfunction()
total(spills "spill (stores|loads)")
total(stack "stack frame")
total(shared "smem")
file(SIZE ${CUBIN} bytes)
file(WRITE ${CUBIN}.info "${NAME}\t${REAL}\t${registers}\t${spills}\t${stack}\t${shared}\t${bytes}\n")
