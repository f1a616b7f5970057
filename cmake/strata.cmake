# Flags that every target shares live in strata_flags.

add_library(strata_flags INTERFACE)
target_include_directories(strata_flags INTERFACE ${PROJECT_SOURCE_DIR}/src
                                                  ${PROJECT_SOURCE_DIR}/include)
# Contraction is off so that one formula rounds the same in every translation unit.
target_compile_options(strata_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>"
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-sign-conversion;-Wno-missing-field-initializers>"
    "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>")
# 554: nvcc's front end warns of the views' conversion to const where T is const already.
target_compile_options(strata_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;--diag-suppress=554>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off>")
# With sanitizers most of a build is code generation, so only the folders with long loops are
# optimised. A null reference ends in a signal that AddressSanitizer reports as well, and nothing
# here asks for dynamic types: those two checks, which cost a third of the time, are left out.
set(strata_optimised_with_sanitizers backend_cpu quant op_oracle)
if(STRATA_SANITIZE)
    target_compile_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE}
                                                  -fno-sanitize=null,vptr
                                                  -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE})
    # Large programs, linked three times as fast.
    find_program(STRATA_GOLD ld.gold)
    if(STRATA_GOLD)
        target_link_options(strata_flags INTERFACE -fuse-ld=gold)
    endif()
endif()

# Where most of a build is the templates and inline functions that each file makes anew, files of a
# folder are compiled several at a time: of programs with tests alone, or of all. Off by default: a
# file alone shows what it lacks, and a small change compiles little. Left out are folders whose
# files define the same names, as each number format does its Block.
set(STRATA_UNITY OFF CACHE STRING "Compile several files of a folder at once: OFF, TESTS or ON")
set(strata_compiled_alone strata_backend_cpu strata_backend_cuda strata_bench strata_op_oracle
                          strata_program strata_quant)
function(strata_unity target)
    if(NOT STRATA_UNITY OR target IN_LIST strata_compiled_alone)
        return()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    # Of names of a file alone, in what looks like a header.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    if(NOT STRATA_UNITY STREQUAL "TESTS")
        return()
    endif()
    # A file alone proves its own header whole (tools/tidy/headers.py).
    get_target_property(sources ${target} SOURCES)
    foreach(source IN LISTS sources)
        cmake_path(REPLACE_EXTENSION source LAST_ONLY h OUTPUT_VARIABLE header)
        if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${header})
            set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        endif()
    endforeach()
endfunction()

# Headers that most files include, parsed once for all libraries and once for all tests: an eighth
# of the time of a build from nothing. Off by default, so that a file that lacks an include is seen.
option(STRATA_PRECOMPILE "Parse common headers once" OFF)
if(STRATA_PRECOMPILE)
    set(strata_common_headers <algorithm> <array> <cmath> <cstdint> <cstring> <functional>
                              <initializer_list> <memory> <optional> <span> <sstream> <string>
                              <string_view> <unordered_map> <utility> <vector>)
    file(WRITE ${PROJECT_BINARY_DIR}/headers.cc "")
    add_library(strata_headers OBJECT ${PROJECT_BINARY_DIR}/headers.cc)
    target_link_libraries(strata_headers PRIVATE strata_flags)
    target_precompile_headers(strata_headers PRIVATE ${strata_common_headers})
endif()

# strata_library(gguf SOURCES a.cc b.cc USES quant base PRIVATE_USES other::library): the one target
# of a folder, strata_gguf. USES names other folders, as tools/tidy/layers.txt grants them.
function(strata_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
    add_library(strata_${name} STATIC ${ARG_SOURCES})
    list(TRANSFORM ARG_USES PREPEND strata_)
    target_link_libraries(strata_${name} PUBLIC strata_flags ${ARG_USES}
                                         PRIVATE ${ARG_PRIVATE_USES})
    if(STRATA_SANITIZE AND name IN_LIST strata_optimised_with_sanitizers)
        target_compile_options(strata_${name} PRIVATE -O1)
    elseif(STRATA_PRECOMPILE)
        target_precompile_headers(strata_${name} REUSE_FROM strata_headers)
    endif()
    if(NOT STRATA_UNITY STREQUAL "TESTS")
        strata_unity(strata_${name})
    endif()
endfunction()

# Tests are compiled far more often than their loops run.
set(strata_test_options -O1)
if(STRATA_SANITIZE)
    set(strata_test_options "")
endif()
if(STRATA_PRECOMPILE AND STRATA_TESTS)
    find_package(GTest REQUIRED)
    find_package(nlohmann_json REQUIRED)
    add_library(strata_test_headers OBJECT ${PROJECT_BINARY_DIR}/headers.cc)
    target_link_libraries(strata_test_headers PRIVATE strata_flags GTest::gtest
                                                      nlohmann_json::nlohmann_json)
    target_compile_options(strata_test_headers PRIVATE ${strata_test_options})
    target_precompile_headers(strata_test_headers PRIVATE ${strata_common_headers} <gtest/gtest.h>
                                                          <nlohmann/json.hpp>)
endif()

# All programs with tests of the label quick, and nothing else: what the sanitizer presets build.
add_custom_target(quick_tests)
# Those that run on a GPU too, where the build and the machine have one: tools/test_cuda.sh.
add_custom_target(gpu_tests)

# strata_test(name SOURCES ... USES ... LABELS quick): one GoogleTest program, each case a ctest.
function(strata_test name)
    cmake_parse_arguments(ARG "" "" "SOURCES;USES;LABELS" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    list(TRANSFORM ARG_USES PREPEND strata_)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE strata_flags ${ARG_USES} GTest::gtest GTest::gtest_main)
    target_compile_options(${name} PRIVATE ${strata_test_options})
    if(STRATA_PRECOMPILE)
        target_precompile_headers(${name} REUSE_FROM strata_test_headers)
    endif()
    strata_unity(${name})
    if("quick" IN_LIST ARG_LABELS)
        add_dependencies(quick_tests ${name})
    endif()
    if("gpu" IN_LIST ARG_LABELS)
        add_dependencies(gpu_tests ${name})
    endif()
    # An empty value would be lost on the way and take the next property's name for itself.
    set(properties TIMEOUT 600)
    if(ARG_LABELS)
        list(APPEND properties LABELS "${ARG_LABELS}")
    endif()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()
