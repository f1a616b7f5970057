# One static library a folder: strata_library(base SOURCES a.cc b.cc USES quant PUBLIC_USES ...).
# Flags that every target shares live in strata_flags.

add_library(strata_flags INTERFACE)
target_include_directories(strata_flags INTERFACE ${PROJECT_SOURCE_DIR}/src
                                                  ${PROJECT_SOURCE_DIR}/include)
# Contraction is off so that one formula rounds the same in every translation unit.
target_compile_options(strata_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                              -Wno-sign-conversion -ffp-contract=off)
if(STRATA_SANITIZE)
    target_compile_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE}
                                                  -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(strata_flags INTERFACE -fsanitize=${STRATA_SANITIZE})
endif()

function(strata_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
    add_library(strata_${name} STATIC ${ARG_SOURCES})
    list(TRANSFORM ARG_USES PREPEND strata_)
    target_link_libraries(strata_${name} PUBLIC strata_flags ${ARG_USES} PRIVATE ${ARG_PRIVATE_USES})
endfunction()

# strata_test(name SOURCES ... USES ... LABELS quick): one GoogleTest program, each case a ctest.
function(strata_test name)
    cmake_parse_arguments(ARG "" "" "SOURCES;USES;LABELS;ENVIRONMENT" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    list(TRANSFORM ARG_USES PREPEND strata_)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE strata_flags ${ARG_USES} GTest::gtest GTest::gtest_main)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${ARG_LABELS}"
                         TIMEOUT 600)
endfunction()
