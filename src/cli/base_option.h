// The option --base: what adapters were trained beside.
#pragma once
#include <CLI/CLI.hpp>

#include <string>

namespace lockstep {

inline void add_base_option(CLI::App& command, std::string& base) {
  command.add_option("--base", base, "Of adapters: the model that they were trained beside [where they say it is]")
      ->type_name("DIR");
}

}  // namespace lockstep
