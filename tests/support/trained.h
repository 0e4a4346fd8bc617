// What a run in fp64 has learned, whatever its layout: its losses, and every tensor of its last state, whole.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::tests {

struct Trained {
  std::vector<double> losses = {};  // by step
  std::map<std::pair<std::string, std::string>, std::vector<double>> state = {};
};

// Of a run's folder; throws where there is no whole checkpoint of that step.
Trained trained_in(const std::filesystem::path& out, std::int64_t step);

// The largest relative difference of a loss, or of a tensor's elements to its largest; infinite where one has others
// than the other, 0 only where all are equal to the bit.
double distance(const Trained& a, const Trained& b);

}  // namespace lockstep::tests
