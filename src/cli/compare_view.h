// What `compare` shows: tables for people, markdown for documents, JSON for programs.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "plan/comparison.h"
#include "plan/layout_score.h"
#include "spec/run/run_spec.h"

namespace lockstep {

struct CompareAsked {
  std::int64_t ranks = 1;                                      // that are looked at closely
  std::set<std::int64_t> scale = {};                           // empty: no scaling was asked for
  std::map<std::int64_t, std::set<std::string>> skipped = {};  // at these numbers of ranks something was: why
  int cores = 1;
  std::int64_t steps = 1;
  std::size_t layouts = 0;                  // that were to be tried
  bool brief = false;                       // one table for all
  std::optional<LinkSpec> link = {};        // a simulated one
  std::optional<MachineSpec> machine = {};  // whose file predicts times
  int ranks_here = 0;                       // of ranks that are processes: on this host; 0: they are threads
};

enum class CompareStyle { plain, colour, markdown };

std::string compare_text(const RunSpec& run, const Comparison& comparison, const CompareAsked& asked,
                         CompareStyle style);
nlohmann::ordered_json compare_json(const RunSpec& run, const Comparison& comparison, const CompareAsked& asked);

// Every layout with a predicted time, for plan/layout_score.h.
std::vector<ScoredLayout> scored_layouts(const Comparison& comparison);

// Tokens per second over those of one rank times the cores that the ranks use, at most all there are. Nothing where one
// rank was not tried.
std::optional<double> efficiency(const Comparison& comparison, const ComparedLayout& of, int cores);

}  // namespace lockstep
