include(build_id)
include(embed)
include(page)

# What most files read first, read once for all rooms: a third of the time that compiling them takes. Every file still
# includes what it uses; -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON compiles each as it stands.
function(lockstep_precompile room)
  if(room STREQUAL "base")
    target_precompile_headers(lockstep_base PRIVATE <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem>
      <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <utility>
      <vector> <fmt/format.h>)
  else()
    target_precompile_headers(lockstep_${room} REUSE_FROM lockstep_base)
  endif()
endfunction()

# The files that parse arguments, apart from the rest of their room: whatever includes CLI11 compiles for seconds, and
# what it does once at the start needs no optimizer.
function(lockstep_commands out)
  set(commands "")
  foreach(source ${ARGN})
    file(STRINGS ${source} uses REGEX "#include <CLI/CLI.hpp>" LIMIT_COUNT 1)
    if(uses)
      list(APPEND commands ${source})
    endif()
  endforeach()
  add_library(lockstep_commands OBJECT ${commands})
  target_compile_options(lockstep_commands PRIVATE -O1)
  target_precompile_headers(lockstep_commands PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp> <fmt/format.h>)
  set(${out} ${commands} PARENT_SCOPE)
endfunction()

# One library a room, linked by the table in src/LAYERS: what a room may include is what it links.
function(lockstep_rooms)
  if(CUDAToolkit_FOUND)
    find_path(LOCKSTEP_CUDNN_HEADERS cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/LAYERS)
  file(STRINGS ${CMAKE_SOURCE_DIR}/src/LAYERS lines REGEX "^[a-z]+:")
  foreach(line ${lines})
    string(REGEX MATCH "^([a-z]+):(.*)$" _ "${line}")
    set(room ${CMAKE_MATCH_1})
    separate_arguments(below UNIX_COMMAND "${CMAKE_MATCH_2}")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*.cpp ${CMAKE_SOURCE_DIR}/src/${room}/*.cu)
    list(FILTER sources EXCLUDE REGEX "/cli/main\\.cpp$")
    # Each device's folder has a stand-in for builds without that device.
    if(CUDAToolkit_FOUND)
      list(FILTER sources EXCLUDE REGEX "/cuda/absent\\.cpp$")
      if(LOCKSTEP_CUDNN_HEADERS)
        list(FILTER sources EXCLUDE REGEX "/cudnn_attention_absent_device\\.cpp$")
      else()
        list(FILTER sources EXCLUDE REGEX "/cudnn_(attention_(nodes|graphs|plan)_|attention_)?device\\.cpp$")
      endif()
    else()
      list(FILTER sources EXCLUDE REGEX "/cuda/(.*/)?([^/]*device\\.cpp|[^/]*\\.cu)$")
    endif()
    if(HWLOC_INCLUDE AND HWLOC_LIBRARY)
      list(FILTER sources EXCLUDE REGEX "/train/pinning_absent\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "/train/pinning\\.cpp$")
    endif()
    if(LOCKSTEP_WEB_MISSING)
      list(FILTER sources EXCLUDE REGEX "/dashboard/(http_server|bounded_stream)\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "/dashboard/http_server_absent\\.cpp$")
    endif()
    if(MPI_CXX_FOUND)
      list(FILTER sources EXCLUDE REGEX "/mpi/absent\\.cpp$")
    else()
      set(stand_in ${sources})
      list(FILTER stand_in INCLUDE REGEX "/mpi/absent\\.cpp$")
      list(FILTER sources EXCLUDE REGEX "/mpi/")
      list(APPEND sources ${stand_in})
    endif()
    if(room STREQUAL "cli")
      lockstep_commands(commands ${sources})
      list(REMOVE_ITEM sources ${commands})
      list(APPEND sources $<TARGET_OBJECTS:lockstep_commands>)
    endif()
    if(sources)
      add_library(lockstep_${room} STATIC ${sources})
      set(kernels ${sources}) # each with many instantiations of its own
      list(FILTER kernels INCLUDE REGEX "\\.cu$")
      set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      target_link_libraries(lockstep_${room} PUBLIC lockstep_flags fmt::fmt Threads::Threads)
      lockstep_precompile(${room})
      foreach(other ${below})
        if(TARGET lockstep_${other})
          target_link_libraries(lockstep_${room} PUBLIC lockstep_${other})
        endif()
      endforeach()
    endif()
  endforeach()

  if(CUDAToolkit_FOUND)
    target_link_libraries(lockstep_tensor PRIVATE CUDA::cudart_static)
    target_link_libraries(lockstep_comm PRIVATE CUDA::cudart_static)
    string(STRIP "${LOCKSTEP_GPU_CODE}" gpu_code)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/tensor/cuda/device.cpp PROPERTIES
      COMPILE_DEFINITIONS "LOCKSTEP_GPU_CODE=\"${gpu_code}\"")
    target_link_libraries(lockstep_kernels PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS})
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cuda/cublas_lt_device.cpp PROPERTIES
      COMPILE_DEFINITIONS "LOCKSTEP_CUDA_LIBRARIES=\"${CUDAToolkit_LIBRARY_DIR}\"")
    # cuDNN comes apart from the toolkit: its headers now, the library itself when a run needs it.
    if(LOCKSTEP_CUDNN_HEADERS)
      target_include_directories(lockstep_kernels SYSTEM PRIVATE ${LOCKSTEP_CUDNN_HEADERS})
      set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cuda/cudnn_device.cpp PROPERTIES
        COMPILE_DEFINITIONS "LOCKSTEP_CUDA_LIBRARIES=\"${CUDAToolkit_LIBRARY_DIR}\"")
    endif()
  endif()

  # Third-party code reaches only the rooms that speak to it.
  if(MPI_CXX_FOUND)
    target_link_libraries(lockstep_comm PRIVATE MPI::MPI_CXX)
  endif()
  target_link_libraries(lockstep_base PUBLIC nlohmann_json::nlohmann_json PRIVATE lockstep_xxhash)
  target_link_libraries(lockstep_spec PRIVATE lockstep_toml)
  target_sources(lockstep_spec PRIVATE ${CMAKE_BINARY_DIR}/generated/embedded_configs.cpp) # cmake/embed.cmake
  target_sources(lockstep_dashboard PRIVATE ${CMAKE_BINARY_DIR}/generated/embedded_page.cpp) # cmake/page.cmake
  if(NOT LOCKSTEP_WEB_MISSING)
    target_link_libraries(lockstep_dashboard PRIVATE lockstep_httplib)
    # Its header takes seconds: for the two files that need it alone.
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/dashboard/http_server.cpp
      ${CMAKE_SOURCE_DIR}/src/dashboard/bounded_stream.cpp PROPERTIES COMPILE_OPTIONS "${HTTPLIB_DEFINITIONS}"
      SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(HWLOC_INCLUDE AND HWLOC_LIBRARY)
    target_include_directories(lockstep_train SYSTEM PRIVATE ${HWLOC_INCLUDE})
    target_link_libraries(lockstep_train PRIVATE ${HWLOC_LIBRARY})
  endif()
  set_target_properties(lockstep_pictures PROPERTIES UNITY_BUILD OFF) # every picture has a kLeft and a kRow of its own
  target_link_libraries(lockstep_cli PRIVATE CLI11::CLI11)
  target_compile_options(lockstep_cli PRIVATE -Wno-stringop-overread) # as in cmake/compiler.cmake
  target_link_libraries(lockstep_commands PRIVATE CLI11::CLI11 lockstep_flags fmt::fmt nlohmann_json::nlohmann_json)
  foreach(part lockstep_cli lockstep_commands)
    target_compile_definitions(${part} PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}")
  endforeach()
  lockstep_build_id()
  # They change often, alone.
  set_source_files_properties(${CMAKE_BINARY_DIR}/generated/build_id.cpp ${CMAKE_BINARY_DIR}/generated/embedded_configs.cpp
    ${CMAKE_BINARY_DIR}/generated/embedded_page.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

  # Elements are touched in kernels/cpu alone, so only it is compiled for this machine's vector unit. (g++ 12 sees
  # uninitialised values inside its own AVX-512 intrinsics.)
  file(GLOB kernels ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cpp)
  set_source_files_properties(${kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-O3;-march=${LOCKSTEP_CPU};-Wno-maybe-uninitialized;-Wno-uninitialized")
endfunction()
