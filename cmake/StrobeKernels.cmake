# From kernels.def to a library of kernel images, and from kernel headers to strings.
#
#   strobe_find_nvcc()                      sets STROBE_CUDA_ENABLED, STROBE_NVCC, STROBE_NVCC_VERSION
#   strobe_embed_headers(<target> FUNCTION <f> ROOTS <root>... FOLDERS <root/folder>...)
#       adds to <target> a function `std::span<const Header> strobe::gpu::<f>()` with every .h below the folders,
#       named from the first root that holds it
#   strobe_add_kernels(<target> DEF <file> FUNCTION <f> [HEADERS <function>] [SAMPLE <bool>] INCLUDES <dir>...)
#       makes the static library <target> with `std::span<const Row> strobe::gpu::<f>()`, and sets, for the
#       caller, <target>_ROWS to the file of resource usage (not set without nvcc);
#       with SAMPLE, the first row of each header alone gets images, and the others are compiled at first use
#
# A row's kernel is compiled once, to PTX, and assembled for each architecture:
#   STROBE_ROW         compute_80 -> sm_80, sm_90; the PTX is kept for newer GPUs
#   STROBE_ROW_SM90    compute_90a -> sm_90a
#   STROBE_ROW_SM100   compute_100a -> sm_100a
set(STROBE_CUDA AUTO CACHE STRING
    "Compile kernels ahead of time with nvcc: AUTO (where it is found, and no sanitizer is used), ON, OFF")
set_property(CACHE STROBE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(STROBE_CUDA_ROWS ALL CACHE STRING
    "Rows to compile ahead of time: ALL, or SAMPLE (one of each header; for tests, as all take minutes)")
set_property(CACHE STROBE_CUDA_ROWS PROPERTY STRINGS ALL SAMPLE)
set(STROBE_NVCC_FLAGS "" CACHE STRING "More flags for nvcc, as -lineinfo")
option(STROBE_CUDA_COMPRESS "Embed kernels compressed: a seventh of the size; the driver unpacks them" ON)
set(STROBE_OLDEST_NVCC 12.8)
set(STROBE_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})

macro(strobe_find_nvcc)
  set(STROBE_CUDA_ENABLED OFF)
  if(STROBE_CUDA STREQUAL "ON" OR (STROBE_CUDA STREQUAL "AUTO" AND NOT STROBE_SANITIZE))
    find_program(STROBE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
    set(problem "no nvcc was found")
    if(STROBE_NVCC)
      execute_process(COMMAND ${STROBE_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
      string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" match "${text}")
      set(STROBE_NVCC_VERSION "${CMAKE_MATCH_1}")
      set(problem "${STROBE_NVCC} has version ${STROBE_NVCC_VERSION}, ${STROBE_OLDEST_NVCC} is needed")
      if(STROBE_NVCC_VERSION VERSION_GREATER_EQUAL STROBE_OLDEST_NVCC)
        set(STROBE_CUDA_ENABLED ON)
      endif()
    endif()
    if(STROBE_CUDA_ENABLED)
      cmake_path(GET STROBE_NVCC PARENT_PATH toolkit_bin)
      find_program(STROBE_FATBINARY fatbinary HINTS ${toolkit_bin} REQUIRED)  # comes with nvcc
      message(STATUS "Kernels: compiled ahead of time by ${STROBE_NVCC} ${STROBE_NVCC_VERSION}")
    elseif(STROBE_CUDA STREQUAL "ON")
      message(FATAL_ERROR "STROBE_CUDA is ON, but ${problem}")
    else()
      message(STATUS "Kernels: compiled at first use by NVRTC (${problem})")
    endif()
  else()
    message(STATUS "Kernels: compiled at first use by NVRTC")
  endif()
  # For folders beside the caller's.
  set(STROBE_CUDA_ENABLED ${STROBE_CUDA_ENABLED} CACHE INTERNAL "")
  set(STROBE_NVCC_VERSION "${STROBE_NVCC_VERSION}" CACHE INTERNAL "")
  set(STROBE_CMAKE_DIR ${STROBE_CMAKE_DIR} CACHE INTERNAL "")
endmacro()

# Assembly that embeds a file as bytes between <symbol> and <symbol>_end, and a 0 after them.
function(strobe_incbin variable symbol file)
  string(APPEND ${variable} "  .balign 64\n${symbol}:\n  .incbin \"${file}\"\n${symbol}_end:\n  .byte 0\n"
                            "  .globl ${symbol}\n  .globl ${symbol}_end\n"
                            "  .hidden ${symbol}\n  .hidden ${symbol}_end\n")
  set(${variable} "${${variable}}" PARENT_SCOPE)
endfunction()

function(strobe_write_assembly file text dependencies)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT
"  .section .rodata
${text}  .section .note.GNU-stack,\"\",%progbits
")
  set_source_files_properties(${file} PROPERTIES OBJECT_DEPENDS "${dependencies}" LANGUAGE ASM)
endfunction()

function(strobe_embed_headers target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FUNCTION" "ROOTS;FOLDERS")
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${arg_FUNCTION})
  list(TRANSFORM arg_FOLDERS APPEND /*.h)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${arg_FOLDERS})
  set(assembly "")
  set(declared "")
  set(listed "")
  set(index 0)
  foreach(header IN LISTS headers)
    set(symbol strobe_${arg_FUNCTION}_${index})
    foreach(root IN LISTS arg_ROOTS)
      cmake_path(IS_PREFIX root ${header} inside)
      if(inside)
        cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${root} OUTPUT_VARIABLE name)
        break()
      endif()
    endforeach()
    strobe_incbin(assembly ${symbol} ${header})
    string(APPEND declared "extern const char ${symbol}[], ${symbol}_end[];\n")
    string(APPEND listed
           "      {\"${name}\", ${symbol}, static_cast<std::size_t>(${symbol}_end - ${symbol})},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  strobe_write_assembly(${out}.S "${assembly}" "${headers}")
  file(CONFIGURE OUTPUT ${out}.cpp @ONLY CONTENT
"// Generated by cmake/StrobeKernels.cmake.
#include \"gpu/rows.h\"

extern \"C\" {
${declared}}

namespace strobe::gpu {

std::span<const Header> ${arg_FUNCTION}() {
  static const Header kHeaders[] = {
${listed}      {},  // an array cannot be empty
  };
  return {kHeaders, ${index}};
}

}  // namespace strobe::gpu
")
  target_sources(${target} PRIVATE ${out}.S ${out}.cpp)
endfunction()

# Reads a kernels.def into the lists row_names, row_headers, row_archs and the variables row_type_<name>.
macro(strobe_read_rows def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${def})
  file(STRINGS ${def} row_lines REGEX "^[ \t]*STROBE_ROW")
  set(row_names "")
  set(row_headers "")
  set(row_archs "")
  foreach(line IN LISTS row_lines)
    if(NOT line MATCHES "^STROBE_ROW(_SM90|_SM100)?\\(([a-z][a-z0-9_]*), \"([^\"]+)\", ([^;\\[]*[^; \\[])\\)$")
      message(FATAL_ERROR "${def}: not a row, or not on one line: ${line}")
    endif()
    set(row_name ${CMAKE_MATCH_2})
    set(row_type_${row_name} "${CMAKE_MATCH_4}")
    if(row_name IN_LIST row_names)
      message(FATAL_ERROR "${def}: two rows are named ${row_name}")
    endif()
    list(APPEND row_names ${row_name})
    list(APPEND row_headers ${CMAKE_MATCH_3})
    if(CMAKE_MATCH_1)
      string(SUBSTRING ${CMAKE_MATCH_1} 3 -1 row_arch)
    else()
      set(row_arch 80)
    endif()
    list(APPEND row_archs ${row_arch})
  endforeach()
endmacro()

# Rules for the PTX and the cubins of one row. Appends to the caller's row_cubins and row_infos, and leaves the
# path of the PTX in row_ptx.
macro(strobe_compile_row name arch includes)
  set(row_ptx ${out}/${name}.ptx)
  set(ptx_90 ${row_ptx})
  set(suffix "")
  set(assembled 80 90)
  if(${arch} GREATER 80)
    set(suffix a)
    set(assembled ${arch})
  endif()
  set(virtual compute_${arch}${suffix})
  separate_arguments(more_flags UNIX_COMMAND "${STROBE_NVCC_FLAGS}")
  set(include_flags ${includes})
  list(TRANSFORM include_flags PREPEND -I)
  add_custom_command(
    OUTPUT ${row_ptx}
    COMMAND ${STROBE_NVCC} -ptx -std=c++20 --expt-relaxed-constexpr -arch=${virtual}
            -DSTROBE_ARCH=${arch} ${include_flags} ${host_flags} ${more_flags} -MD -MF ${row_ptx}.d
            -MT ${row_ptx} -o ${row_ptx} ${out}/${name}.cu
    DEPENDS ${out}/${name}.cu DEPFILE ${row_ptx}.d COMMENT "nvcc ${name} ${virtual}" VERBATIM)
  # Headers that have better code for sm_90 behind __CUDA_ARCH__ (vector reductions) get PTX of their own for it.
  if(${arch} EQUAL 80 AND header STREQUAL "kernels/fa2_bwd.h")
    set(ptx_90 ${out}/${name}.90.ptx)
    add_custom_command(
      OUTPUT ${ptx_90}
      COMMAND ${STROBE_NVCC} -ptx -std=c++20 --expt-relaxed-constexpr -arch=compute_90
              -DSTROBE_ARCH=${arch} ${include_flags} ${host_flags} ${more_flags} -MD -MF ${ptx_90}.d
              -MT ${ptx_90} -o ${ptx_90} ${out}/${name}.cu
      DEPENDS ${out}/${name}.cu DEPFILE ${ptx_90}.d COMMENT "nvcc ${name} compute_90" VERBATIM)
  endif()
  foreach(real IN LISTS assembled)
    set(cubin ${out}/${name}.sm_${real}${suffix}.cubin)
    set(assembled_ptx ${row_ptx})
    set(ptx_arch ${virtual})
    if(real EQUAL 90 AND NOT ptx_90 STREQUAL row_ptx)
      set(assembled_ptx ${ptx_90})
      set(ptx_arch compute_90)
    endif()
    add_custom_command(
      OUTPUT ${cubin} ${cubin}.info
      COMMAND ${CMAKE_COMMAND} -D NVCC=${STROBE_NVCC} -D NAME=${name} -D VIRTUAL=${ptx_arch}
              -D REAL=sm_${real}${suffix} -D PTX=${assembled_ptx} -D CUBIN=${cubin} -D "FLAGS=${STROBE_NVCC_FLAGS}"
              -P ${STROBE_CMAKE_DIR}/AssembleRow.cmake
      DEPENDS ${assembled_ptx} ${STROBE_CMAKE_DIR}/AssembleRow.cmake
      COMMENT "ptxas ${name} sm_${real}${suffix}" VERBATIM)
    list(APPEND row_cubins ${real} ${cubin})
    list(APPEND row_infos ${cubin}.info)
  endforeach()
endmacro()

# Replaces the file that <variable> names, a cubin ("elf") or PTX ("ptx") of that architecture, by its compressed
# form: a fat binary that holds nothing else.
function(strobe_pack variable kind arch)
  if(STROBE_CUDA_COMPRESS)
    add_custom_command(
      OUTPUT ${${variable}}.fatbin
      COMMAND ${STROBE_FATBINARY} --create=${${variable}}.fatbin -64 --compress-mode=size
              --image3=kind=${kind},sm=${arch},file=${${variable}}
      DEPENDS ${${variable}} VERBATIM)
    set(${variable} ${${variable}}.fatbin PARENT_SCOPE)
  endif()
endfunction()

function(strobe_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DEF;FUNCTION;HEADERS;SAMPLE" "INCLUDES")
  if(NOT arg_HEADERS)
    set(arg_HEADERS embedded_headers)
  endif()
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${target})
  set(host_flags "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(host_flags -ccbin ${CMAKE_CXX_COMPILER} -allow-unsupported-compiler)
  endif()
  strobe_read_rows(${arg_DEF})
  set(assembly "")
  set(embedded "")
  set(declared "")
  set(images "")
  set(listed "")
  set(row_infos "")
  set(sampled "")
  foreach(name header arch IN ZIP_LISTS row_names row_headers row_archs)
    set(with_images ${STROBE_CUDA_ENABLED})
    if(arg_SAMPLE AND header IN_LIST sampled)
      set(with_images OFF)
    endif()
    list(APPEND sampled ${header})
    set(type "${row_type_${name}}")
    file(CONFIGURE OUTPUT ${out}/${name}.cu @ONLY CONTENT
"#include \"isa/kernel.h\"
#include \"${header}\"
STROBE_KERNEL(${name}, ${type})
")
    set(row_images "{}")
    if(with_images)
      set(row_cubins "")
      strobe_compile_row(${name} ${arch} "${arg_INCLUDES}")
      if(arch EQUAL 80)
        list(APPEND row_cubins 80 ${row_ptx})
      endif()
      set(row_images "kImages_${name}")
      string(APPEND images "constexpr Image kImages_${name}[] = {\n")
      while(row_cubins)
        list(POP_FRONT row_cubins real file)
        cmake_path(GET file EXTENSION LAST_ONLY extension)
        string(REPLACE . "" extension ${extension})
        set(symbol strobe_${extension}_${real}_${name})
        if(extension STREQUAL ptx)
          set(kind kPtx)
          strobe_pack(file ptx ${real})
        else()
          set(kind kCubin)
          string(REGEX MATCH "sm_([0-9]+a?)\\.cubin$" ignored ${file})
          strobe_pack(file elf ${CMAKE_MATCH_1})
        endif()
        strobe_incbin(assembly ${symbol} ${file})
        list(APPEND embedded ${file})
        string(APPEND declared "extern const unsigned char ${symbol}[], ${symbol}_end[];\n")
        string(APPEND images "    {ImageKind::${kind}, ${real}, STROBE_IMAGE(${symbol})},\n")
      endwhile()
      string(APPEND images "};\n")
    endif()
    string(APPEND listed "      {\"${name}\", \"${header}\",\n       R\"type(${type})type\", ${arch}, "
                         "${row_images}, ${arg_HEADERS}},\n")
  endforeach()

  string(REPLACE . "" toolkit "${STROBE_NVCC_VERSION}")
  if(NOT STROBE_CUDA_ENABLED)
    set(toolkit 0)
  endif()
  list(LENGTH row_names count)
  set(version_function "")
  if(arg_FUNCTION STREQUAL rows)
    set(version_function "int toolkit_version() { return ${toolkit}; }\n\n")
  endif()
  file(CONFIGURE OUTPUT ${out}/rows.cpp @ONLY CONTENT
"// Generated by cmake/StrobeKernels.cmake from ${arg_DEF}.
#include \"gpu/rows.h\"

#ifdef STROBE_ROWS_WITHOUT_IMAGES  // a program that only needs to know of them
#define STROBE_IMAGE(symbol) nullptr, nullptr
#else
#define STROBE_IMAGE(symbol) symbol, symbol##_end
extern \"C\" {
${declared}}
#endif

namespace strobe::gpu {
namespace {
${images}}  // namespace

${version_function}std::span<const Header> ${arg_HEADERS}();

std::span<const Row> ${arg_FUNCTION}() {
  static const Row kRows[] = {
${listed}      {},  // an array cannot be empty
  };
  return {kRows, ${count}};
}

}  // namespace strobe::gpu
")
  add_library(${target} STATIC ${out}/rows.cpp)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE strobe_flags PUBLIC strobe_headers)
  set(${target}_TABLE ${out}/rows.cpp PARENT_SCOPE)
  if(STROBE_CUDA_ENABLED)
    strobe_write_assembly(${out}/images.S "${assembly}" "${embedded}")
    target_sources(${target} PRIVATE ${out}/images.S)
    add_custom_command(
      OUTPUT ${out}/rows.tsv
      COMMAND ${CMAKE_COMMAND} -D "INFOS=${row_infos}" -D OUT=${out}/rows.tsv -D VERSION=${STROBE_NVCC_VERSION}
              -P ${STROBE_CMAKE_DIR}/CollectRows.cmake
      DEPENDS ${row_infos} ${STROBE_CMAKE_DIR}/CollectRows.cmake COMMENT "Resource usage of ${target}" VERBATIM)
    target_sources(${target} PRIVATE ${out}/rows.tsv)
    set(${target}_ROWS ${out}/rows.tsv PARENT_SCOPE)
  endif()
endfunction()
