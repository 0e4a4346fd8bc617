# The dashboard's page and its charting library, as the program carries them: a C++ source written at configure time, and
# again whenever one of the files changes. Without the library the list is empty, and the program says what to install.
function(lockstep_embed_page root chart out)
  set(text "// Written by cmake/page.cmake from src/dashboard/page/ and the charting library.\n#include \"dashboard/page_files.h\"\n\nnamespace lockstep {\n")
  string(APPEND text "std::string_view missing_packages() { return \"${LOCKSTEP_WEB_MISSING}\"; }\n")
  string(APPEND text "std::span<const PageFile> page_files() {\n")
  if(NOT LOCKSTEP_WEB_MISSING)
    string(APPEND text "  static constexpr PageFile kFiles[] = {\n")
    foreach(row "/|text/html|${root}/index.html" "/login|text/html|${root}/login.html"
                "/page.css|text/css|${root}/page.css" "/page.js|text/javascript|${root}/page.js"
                "/common.js|text/javascript|${root}/common.js" "/charts.js|text/javascript|${root}/charts.js" "/bars.js|text/javascript|${root}/bars.js"
                "/timeline.js|text/javascript|${root}/timeline.js"
                "/dygraph.js|text/javascript|${chart}/dygraph.min.js" "/dygraph.css|text/css|${chart}/dygraph.min.css")
      string(REPLACE "|" ";" row "${row}")
      list(GET row 0 path)
      list(GET row 1 type)
      list(GET row 2 file)
      file(READ ${file} content)
      string(APPEND text "{\"${path}\", \"${type}; charset=utf-8\", R\"~page~(${content})~page~\"},\n")
    endforeach()
    string(APPEND text "  };\n  return kFiles;\n}\n")
  else()
    string(APPEND text "  return {};\n}\n")
  endif()
  string(APPEND text "}  // namespace lockstep\n")
  set(old "")
  if(EXISTS ${out})
    file(READ ${out} old)
  endif()
  if(NOT old STREQUAL text)
    file(WRITE ${out} "${text}")
  endif()
endfunction()

file(GLOB lockstep_page CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/dashboard/page/*)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lockstep_page})
lockstep_embed_page(${CMAKE_SOURCE_DIR}/src/dashboard/page "${DYGRAPHS_FOLDER}" ${CMAKE_BINARY_DIR}/generated/embedded_page.cpp)
