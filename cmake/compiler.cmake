# Flags of every target.
#
# -ffp-contract=off: a*b+c is two roundings unless the source says fma, so the same source gives the same bits
# wherever the optimizer happens to look (docs/design.md, "The order of sums").
# -Wno-stringop-overflow: g++ 12 sees overflows inside fmt's headers that are not there.
add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wno-psabi -Wno-stringop-overflow -ffp-contract=off -fno-math-errno>)
target_include_directories(lockstep_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")

if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
endif()
