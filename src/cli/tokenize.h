// lockstep tokenize: text files and folders as one token file.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep {

void add_tokenize(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
