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
