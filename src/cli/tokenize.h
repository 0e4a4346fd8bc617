// lockstep tokenize: text files and folders as one token file.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_tokenize(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
