#include "support/run_results.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace lockstep::tests {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<double> losses_in(const fs::path& out) {
  std::vector<double> losses;
  std::ifstream lines(out / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    for (const char* key : {"loss", "eval_loss"})
      if (record.contains(key)) losses.push_back(record[key]);
  }
  return losses;
}

RunResults results_in(const fs::path& out) {
  RunResults results{losses_in(out), {}};
  for (const auto& entry : fs::recursive_directory_iterator(out / "checkpoints"))
    if (entry.path().extension() == ".safetensors")
      results.files[fs::relative(entry.path(), out)] = text_of(entry.path());
  return results;
}

std::string tiny_run(int global_batch, double deadline) {
  return fmt::format(R"(
[model]
family = "llama"
vocabulary = 64
layers = 2
width = 32
heads = 4
kv_heads = 2
ffn_width = 48
max_positions = 32
[data]
seq = 16
[data.synthetic]
vocabulary = 64
order = 1
[train]
steps = 6
global_batch = {}
eval_every = 3
[optim]
warmup = 0
clip = 0.1
[run]
threads = 1
deadline = {}
)",
                     global_batch, deadline);
}

}  // namespace lockstep::tests
