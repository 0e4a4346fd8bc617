// What a run of the program has left in its folder, and the file of a small one.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::tests {

std::string text_of(const std::filesystem::path& file);

// Losses of the run's steps and evaluations, in the order they were written.
std::vector<double> losses_in(const std::filesystem::path& out);

// Everything that was learned: those, and the files of all checkpoints' state, byte by byte.
struct RunResults {
  std::vector<double> losses;
  std::map<std::string, std::string> files;
  bool operator==(const RunResults&) const = default;
};
RunResults results_in(const std::filesystem::path& out);

// A run of six steps of a tiny Llama on synthetic data, without [layout].
std::string tiny_run(int global_batch, double deadline);

}  // namespace lockstep::tests
