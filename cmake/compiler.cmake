# Flags of every target.
#
# -ffp-contract=off: a*b+c is two roundings unless the source says fma, so the same source gives the same bits
# wherever the optimizer happens to look (docs/design.md, "The order of sums").
# -Wno-stringop-overflow, -Wno-array-bounds, -Wno-restrict: g++ 12 sees faults inside fmt and std::string that are not there.
add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wno-psabi -Wno-stringop-overflow -Wno-array-bounds -Wno-restrict -ffp-contract=off -fno-math-errno>)
target_include_directories(lockstep_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

# Elements are touched in kernels/cpu alone, which asks for more (cmake/rooms.cmake).
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")

# Most of a file's compile time goes into reading headers, so several files of a target are compiled together. Edits are
# compiled faster file by file: the dev preset does that.
set(LOCKSTEP_FILES_TOGETHER 8 CACHE STRING "How many files are compiled together; 1: each by itself")
if(LOCKSTEP_FILES_TOGETHER GREATER 1)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE ${LOCKSTEP_FILES_TOGETHER})
endif()

if(LOCKSTEP_SANITIZE)
  # -Wno-maybe-uninitialized: beside a sanitizer's checks g++ 12 loses sight of what std::regex and std::function write.
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()

# ccache keeps objects of files that use precompiled headers only if it may trust them.
find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${LOCKSTEP_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()
