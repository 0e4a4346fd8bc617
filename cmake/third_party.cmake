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

# The serial OpenBLAS under our own threads: bench/results/2026-11-15-gemm-libraries.md says why. It is found by its
# folder, since the plain library name may lead to a threaded build whose threads would fight with ours.
find_library(LOCKSTEP_BLAS NAMES openblas PATH_SUFFIXES openblas-serial
             PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
find_library(LOCKSTEP_BLAS NAMES openblas REQUIRED)
find_path(LOCKSTEP_BLAS_INCLUDE cblas.h PATH_SUFFIXES openblas-serial
          PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH)
find_path(LOCKSTEP_BLAS_INCLUDE cblas.h REQUIRED)
add_library(lockstep_blas INTERFACE)
target_include_directories(lockstep_blas SYSTEM INTERFACE ${LOCKSTEP_BLAS_INCLUDE})
target_link_libraries(lockstep_blas INTERFACE ${LOCKSTEP_BLAS})
