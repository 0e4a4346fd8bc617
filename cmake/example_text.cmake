# The built-in example's text: the project's documents and sources, one behind the other, taken into src/data by the
# assembler.
function(lockstep_example_text)
  file(GLOB_RECURSE parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/*.md ${CMAKE_SOURCE_DIR}/src/*.h ${CMAKE_SOURCE_DIR}/src/*.cpp)
  list(SORT parts)
  list(PREPEND parts ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CONTRIBUTING.md)
  set(text ${CMAKE_BINARY_DIR}/generated/example.txt)
  add_custom_command(OUTPUT ${text} DEPENDS ${parts} VERBATIM
    COMMAND ${CMAKE_COMMAND} -E cat ${parts} > ${text}
    COMMENT "Collecting the built-in example's text")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/data/example_text.cpp PROPERTIES
    OBJECT_DEPENDS ${text} COMPILE_DEFINITIONS "LOCKSTEP_EXAMPLE_TEXT=\"${text}\"")
endfunction()
