# Libraries of the field, from the distribution's packages (tools/setup installs them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# toml++ ships no CMake package on Debian; its headers are enough.
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
add_library(lockstep_toml INTERFACE)
target_include_directories(lockstep_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE})
target_compile_definitions(lockstep_toml INTERFACE TOML_HEADER_ONLY=1)

# xxHash: no CMake package either; XXH3's values are fixed since 0.8.0.
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(lockstep_xxhash INTERFACE)
target_include_directories(lockstep_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE})
target_link_libraries(lockstep_xxhash INTERFACE ${XXHASH_LIBRARY})

# CUDA: used where its toolkit is found; LOCKSTEP_CUDA=ON insists on it, OFF leaves it out.
set(LOCKSTEP_CUDA "AUTO" CACHE STRING "Build for NVIDIA GPUs: AUTO, ON or OFF")
if(LOCKSTEP_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit QUIET)
elseif(LOCKSTEP_CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
if(CUDAToolkit_FOUND)
  message(STATUS "CUDA ${CUDAToolkit_VERSION}: building for GPUs too")
else()
  message(STATUS "CUDA: not found or left out; building without it")
endif()
