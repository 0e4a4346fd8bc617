// Predicted against measured step times of many layouts: the table of several `lockstep compare --machine --json`.
//
//   bench_predictions PART.json…
//
// Parts of the same model and batch are one table, which bench/run_predictions makes in parts so that it can be
// interrupted. Exit code 1: a file cannot be read.
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/layout_score.h"

namespace {

using lockstep::ScoredLayout;

struct Model {
  std::int64_t parameters, tokens;
  auto operator<=>(const Model&) const = default;
};

void add_part(const char* file, std::map<Model, std::vector<ScoredLayout>>& models) {
  std::ifstream in(file);
  const auto part = nlohmann::json::parse(in);
  auto& layouts = models[{part.at("parameters"), part.at("tokens_per_step")}];
  for (const auto& one : part.at("layouts"))
    layouts.push_back({.name = one.at("layout"),
                       .predicted = one.at("predicted").at("step_seconds"),
                       .measured = one.at("step_seconds"),
                       .repeatability = one.at("repeatability")});
  for (const auto& out : part.at("left_out"))
    fmt::print("left out: {}: {}\n", out.at("layout").dump(), out.at("why").get<std::string>());
}

}  // namespace

int main(int count, char** files) {
  std::map<Model, std::vector<ScoredLayout>> models;
  try {
    for (int i = 1; i < count; ++i) add_part(files[i], models);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_predictions: {}\n", error.what());
    return 1;
  }
  for (const auto& [model, layouts] : models) {
    fmt::print(
        "{} parameters, {} tokens per step\n\n| layout | predicted ms | measured ms | error | repeats within |\n"
        "|---|---:|---:|---:|---:|\n",
        model.parameters, model.tokens);
    for (const ScoredLayout& one : layouts)
      fmt::print("| `{}` | {:.1f} | {:.1f} | {:+.1f}% | {:.1f}% |\n", one.name, 1e3 * one.predicted, 1e3 * one.measured,
                 100 * one.error(), 100 * one.repeatability);
    fmt::print("\n{}\n", lockstep::score_text(layouts));
  }
  return 0;
}
