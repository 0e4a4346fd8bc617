// lockstep train-tokenizer: learns a byte-level BPE from text files and writes it as a tokenizer.json.
#pragma once
#include <functional>

namespace CLI {
class App;
}

namespace lockstep {

void add_train_tokenizer(CLI::App& app, std::function<int()>& chosen);

}  // namespace lockstep
