include(embed)
include(example_text)

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
        list(FILTER sources EXCLUDE REGEX "/cuda/cudnn_attention_absent_device\\.cpp$")
      else()
        list(FILTER sources EXCLUDE REGEX "/cuda/cudnn_(attention_(nodes|graphs|plan)_|attention_)?device\\.cpp$")
      endif()
    else()
      list(FILTER sources EXCLUDE REGEX "/cuda/([^/]*device\\.cpp|[^/]*\\.cu)$")
    endif()
    if(MPI_CXX_FOUND)
      list(FILTER sources EXCLUDE REGEX "/mpi/absent\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "/mpi/([^a]|a[^b])[^/]*\\.cpp$") # all but absent.cpp
    endif()
    if(sources)
      add_library(lockstep_${room} STATIC ${sources})
      target_link_libraries(lockstep_${room} PUBLIC lockstep_flags fmt::fmt Threads::Threads)
      foreach(other ${below})
        if(TARGET lockstep_${other})
          target_link_libraries(lockstep_${room} PUBLIC lockstep_${other})
        endif()
      endforeach()
    endif()
  endforeach()

  if(CUDAToolkit_FOUND)
    target_link_libraries(lockstep_tensor PRIVATE CUDA::cudart_static)
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
  target_link_libraries(lockstep_cli PRIVATE CLI11::CLI11)
  target_compile_definitions(lockstep_cli PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}")
  # Half of what compiling a command takes is this header: a clean build reads it once.
  target_precompile_headers(lockstep_cli PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp> <fmt/format.h>)

  lockstep_example_text()

  # Elements are touched in kernels/cpu alone, so only it is compiled for this machine's vector unit. (g++ 12 sees
  # uninitialised values inside its own AVX-512 intrinsics.)
  file(GLOB kernels ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cpp)
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "-march=${LOCKSTEP_CPU};-Wno-maybe-uninitialized;-Wno-uninitialized")
endfunction()
