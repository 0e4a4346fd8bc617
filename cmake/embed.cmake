# The files of configs/ that the program carries inside: a C++ source written from them at configure time, and again
# whenever one of them changes, comes or goes. Also a script, for builds without this project:
#   cmake -DSOURCE=<root> -DOUT=<file.cpp> -P cmake/embed.cmake
function(lockstep_embed root out)
  file(GLOB models LIST_DIRECTORIES false ${root}/configs/models/*.toml)
  list(SORT models)
  set(example ${root}/configs/runs/example.toml)
  set(text "// Written by cmake/embed.cmake from configs/.\n#include \"spec/presets.h\"\n\nnamespace lockstep {\n")
  string(APPEND text "std::span<const EmbeddedText> embedded_models() {\n  static constexpr EmbeddedText kModels[] = {\n")
  foreach(file ${models})
    cmake_path(GET file STEM LAST_ONLY name)
    file(READ ${file} content)
    string(APPEND text "{\"${name}\", R\"~toml~(${content})~toml~\"},\n")
  endforeach()
  file(READ ${example} content)
  string(APPEND text "  };\n  return kModels;\n}\n"
    "std::string_view embedded_example_run() { return R\"~toml~(${content})~toml~\"; }\n}  // namespace lockstep\n")
  set(old "")
  if(EXISTS ${out})
    file(READ ${out} old)
  endif()
  if(NOT old STREQUAL text)
    file(WRITE ${out} "${text}")
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  lockstep_embed(${SOURCE} ${OUT})
else()
  file(GLOB lockstep_embedded CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/models/*.toml)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${lockstep_embedded} ${CMAKE_SOURCE_DIR}/configs/runs/example.toml)
  lockstep_embed(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated/embedded_configs.cpp)
endif()
