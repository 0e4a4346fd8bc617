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

# hwloc, for the placing of ranks on cores: without it the system places them.
find_path(HWLOC_INCLUDE hwloc.h)
find_library(HWLOC_LIBRARY hwloc)

# CUDA: used where its toolkit is found; LOCKSTEP_CUDA=ON insists on it, OFF leaves it out.
set(LOCKSTEP_CUDA "AUTO" CACHE STRING "Build for NVIDIA GPUs: AUTO, ON or OFF")
if(LOCKSTEP_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit QUIET)
elseif(LOCKSTEP_CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
if(CUDAToolkit_FOUND)
  message(STATUS "CUDA ${CUDAToolkit_VERSION}: building for GPUs too")
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  set(CMAKE_CUDA_ARCHITECTURES OFF) # stated below: CMake's names lack the "a" that stands for Hopper's own instructions
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not know the standards of nvcc 13
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(LOCKSTEP_GPU "compute_90a:sm_90a" CACHE STRING "GPUs to build for, as compute_X:sm_X pairs")
  foreach(gpu ${LOCKSTEP_GPU})
    string(REPLACE ":" ";" parts ${gpu})
    list(GET parts 0 virtual)
    list(GET parts 1 real)
    string(APPEND CMAKE_CUDA_FLAGS " -gencode arch=${virtual},code=${real}")
    string(APPEND LOCKSTEP_GPU_CODE " ${real}") # for the program to say what it has code for
  endforeach()
  string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr --fmad=false -DFMT_USE_CONSTEXPR=1")
  # fmad: fma only where the source says so. fmt 9 turns its constexpr off under nvcc, which then cannot check formats.
else()
  message(STATUS "CUDA: not found or left out; building without it")
endif()

# MPI: ranks as processes, where it is found; LOCKSTEP_MPI=ON insists on it, OFF leaves it out.
set(LOCKSTEP_MPI "AUTO" CACHE STRING "Build for ranks as processes under MPI: AUTO, ON or OFF")
set(MPI_CXX_SKIP_MPICXX ON)
if(LOCKSTEP_MPI STREQUAL "AUTO")
  find_package(MPI QUIET COMPONENTS CXX)
elseif(LOCKSTEP_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
if(MPI_CXX_FOUND)
  message(STATUS "MPI ${MPI_CXX_VERSION}: building for ranks as processes too")
else()
  message(STATUS "MPI: not found or left out; building without it")
endif()
