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

# State that is offloaded to a disk is read and written through io_uring; without the library, by threads.
find_path(URING_INCLUDE liburing.h)
find_library(URING_LIBRARY uring)

# libsodium, for the connections by which ranks under a launcher's variables find each other; without it they are refused by
# its name, and everything else works. LOCKSTEP_SODIUM=ON insists on it, OFF leaves it out.
set(LOCKSTEP_SODIUM "AUTO" CACHE STRING "Use libsodium for the control plane: AUTO, ON or OFF")
find_path(SODIUM_INCLUDE sodium.h)
find_library(SODIUM_LIBRARY sodium)
set(LOCKSTEP_ENCRYPTION OFF)
if(SODIUM_INCLUDE AND SODIUM_LIBRARY AND NOT LOCKSTEP_SODIUM STREQUAL "OFF")
  set(LOCKSTEP_ENCRYPTION ON)
elseif(LOCKSTEP_SODIUM STREQUAL "ON")
  message(FATAL_ERROR "the control plane needs libsodium-dev")
else()
  message(STATUS "Control plane: left out; it needs libsodium-dev")
endif()

# Tokenizers of Hugging Face: patterns by PCRE2, normal forms by ICU. Without one of them, a tokenizer.json that needs it is
# refused by the library's name. LOCKSTEP_TOKENIZERS=ON insists on both, OFF leaves both out.
set(LOCKSTEP_TOKENIZERS "AUTO" CACHE STRING "Use PCRE2 and ICU for tokenizers: AUTO, ON or OFF")
find_path(PCRE2_INCLUDE pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
find_path(ICU_INCLUDE unicode/normalizer2.h)
find_library(ICU_LIBRARY icuuc)
set(LOCKSTEP_PCRE2 OFF)
set(LOCKSTEP_ICU OFF)
if(NOT LOCKSTEP_TOKENIZERS STREQUAL "OFF")
  if(PCRE2_INCLUDE AND PCRE2_LIBRARY)
    set(LOCKSTEP_PCRE2 ON)
  endif()
  if(ICU_INCLUDE AND ICU_LIBRARY)
    set(LOCKSTEP_ICU ON)
  endif()
endif()
if(NOT LOCKSTEP_PCRE2 OR NOT LOCKSTEP_ICU)
  if(LOCKSTEP_TOKENIZERS STREQUAL "ON")
    message(FATAL_ERROR "tokenizers need libpcre2-dev and libicu-dev")
  endif()
  message(STATUS "Tokenizers: patterns (libpcre2-dev) ${LOCKSTEP_PCRE2}, normal forms (libicu-dev) ${LOCKSTEP_ICU}")
endif()

# Compressed text: gzip by zlib, zstd by libzstd. Without one of them, such files are refused by the library's name.
# LOCKSTEP_COMPRESSED=ON insists on both, OFF leaves both out.
set(LOCKSTEP_COMPRESSED "AUTO" CACHE STRING "Read .gz and .zst files: AUTO, ON or OFF")
find_path(ZLIB_INCLUDE zlib.h)
find_library(ZLIB_FILE z)
find_path(ZSTD_INCLUDE zstd.h)
find_library(ZSTD_FILE zstd)
set(LOCKSTEP_GZIP OFF)
set(LOCKSTEP_ZSTD OFF)
if(NOT LOCKSTEP_COMPRESSED STREQUAL "OFF")
  if(ZLIB_INCLUDE AND ZLIB_FILE)
    set(LOCKSTEP_GZIP ON)
  endif()
  if(ZSTD_INCLUDE AND ZSTD_FILE)
    set(LOCKSTEP_ZSTD ON)
  endif()
endif()
if(NOT LOCKSTEP_GZIP OR NOT LOCKSTEP_ZSTD)
  if(LOCKSTEP_COMPRESSED STREQUAL "ON")
    message(FATAL_ERROR "compressed text needs zlib1g-dev and libzstd-dev")
  endif()
  message(STATUS "Compressed text: gzip (zlib1g-dev) ${LOCKSTEP_GZIP}, zstd (libzstd-dev) ${LOCKSTEP_ZSTD}")
endif()

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

# The dashboard: cpp-httplib reads requests, and dygraphs draws curves. Of the charting libraries that Debian packages it
# is the one made for long time series with zoom, and it is one file of 130 KB that needs nothing else.
# LOCKSTEP_WEB=ON insists on both, OFF leaves the dashboard out.
set(LOCKSTEP_WEB "AUTO" CACHE STRING "Build the dashboard: AUTO, ON or OFF")
set(LOCKSTEP_WEB_MISSING "")
find_path(DYGRAPHS_FOLDER dygraph.min.js PATHS /usr/share/javascript/dygraphs /usr/share/nodejs/dygraphs/dist)
find_path(HTTPLIB_INCLUDE httplib.h)
find_library(HTTPLIB_LIBRARY cpp-httplib) # Debian's is a library; upstream's header holds all of it
set(HTTPLIB_DEFINITIONS "")
if(HTTPLIB_LIBRARY) # its types depend on what it was compiled with
  cmake_path(GET HTTPLIB_LIBRARY PARENT_PATH folder)
  if(EXISTS ${folder}/pkgconfig/cpp-httplib.pc)
    file(STRINGS ${folder}/pkgconfig/cpp-httplib.pc flags REGEX "^Cflags:")
    string(REGEX MATCHALL "-DCPPHTTPLIB_[A-Z_]+" HTTPLIB_DEFINITIONS "${flags}")
  endif()
endif()
if(HTTPLIB_INCLUDE AND NOT DEFINED LOCKSTEP_HTTPLIB_FITS)
  # Whether a server can be given its connections by hand, as src/dashboard/http_server.cpp does: 0.11 to 0.14 at least.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${HTTPLIB_INCLUDE})
  set(CMAKE_REQUIRED_DEFINITIONS ${HTTPLIB_DEFINITIONS})
  set(CMAKE_REQUIRED_LIBRARIES Threads::Threads)
  if(HTTPLIB_LIBRARY)
    list(APPEND CMAKE_REQUIRED_LIBRARIES ${HTTPLIB_LIBRARY})
  endif()
  check_cxx_source_compiles("
    #include <httplib.h>
    struct Reader : httplib::Server {
      bool serve(httplib::Stream& s) { bool closed = false; return process_request(s, false, closed, [](httplib::Request&) {}); }
    };
    int main() { Reader reader; return reader.is_running() ? 1 : 0; }" LOCKSTEP_HTTPLIB_FITS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_DEFINITIONS)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()
if(NOT LOCKSTEP_HTTPLIB_FITS OR (LOCKSTEP_WEB STREQUAL "OFF"))
  list(APPEND LOCKSTEP_WEB_MISSING libcpp-httplib-dev)
endif()
if(NOT DYGRAPHS_FOLDER OR (LOCKSTEP_WEB STREQUAL "OFF"))
  list(APPEND LOCKSTEP_WEB_MISSING libjs-dygraphs)
endif()
if(NOT LOCKSTEP_WEB_MISSING)
  add_library(lockstep_httplib INTERFACE)
  target_include_directories(lockstep_httplib SYSTEM INTERFACE ${HTTPLIB_INCLUDE})
  if(HTTPLIB_LIBRARY)
    target_link_libraries(lockstep_httplib INTERFACE ${HTTPLIB_LIBRARY})
  endif()
endif()
string(REPLACE ";" " and " LOCKSTEP_WEB_MISSING "${LOCKSTEP_WEB_MISSING}")
if(LOCKSTEP_WEB_MISSING)
  if(LOCKSTEP_WEB STREQUAL "ON")
    message(FATAL_ERROR "the dashboard needs ${LOCKSTEP_WEB_MISSING}")
  endif()
  message(STATUS "Dashboard: left out; it needs ${LOCKSTEP_WEB_MISSING}")
endif()
