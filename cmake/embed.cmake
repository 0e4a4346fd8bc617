# The files of configs/ that the program carries inside: a C++ source written from them at configure time, and again
# whenever one of them changes, comes or goes. Also a script, for builds without this project:
#   cmake -DSOURCE=<root> -DOUT=<file.cpp> -P cmake/embed.cmake
function(lockstep_embed root out)
  file(GLOB models LIST_DIRECTORIES false ${root}/configs/models/*.toml)
  file(GLOB tunings LIST_DIRECTORIES false ${root}/configs/tuning/*.toml)
  file(GLOB machines LIST_DIRECTORIES false ${root}/configs/machines/*.toml)
  list(SORT models)
  list(SORT machines)
  list(SORT tunings)
  set(example ${root}/configs/runs/example.toml)
  set(text "// Written by cmake/embed.cmake from configs/.\n#include \"spec/model/presets.h\"\n\nnamespace lockstep {\n")
  foreach(kind models machines tunings)
    string(APPEND text
      "std::span<const EmbeddedText> embedded_${kind}() {\n  static constexpr EmbeddedText kFiles[] = {\n")
    foreach(file ${${kind}})
      cmake_path(GET file STEM LAST_ONLY name)
      file(READ ${file} content)
      string(APPEND text "{\"${name}\", R\"~toml~(${content})~toml~\"},\n")
    endforeach()
    string(APPEND text "  };\n  return kFiles;\n}\n")
  endforeach()
  file(READ ${example} content)
  string(APPEND text
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
  file(GLOB lockstep_embedded CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/models/*.toml
    ${CMAKE_SOURCE_DIR}/configs/machines/*.toml ${CMAKE_SOURCE_DIR}/configs/tuning/*.toml)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${lockstep_embedded} ${CMAKE_SOURCE_DIR}/configs/runs/example.toml)
  lockstep_embed(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated/embedded_configs.cpp)
endif()
