// Which layouts `compare` tries: those that were named, in options or a file, or the usual ones, at how many ranks.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/compare_view.h"
#include "cli/machine_arguments.h"
#include "cli/run_arguments.h"
#include "plan/comparison.h"

namespace lockstep {

inline constexpr int kMostComparedThreads = 256;  // of one process
inline constexpr std::int64_t kUsualRanks = 4;    // where the run file names one rank

struct CompareSettings {
  RunArguments run;
  MachineArguments machine;
  std::vector<std::string> layouts, sync;
  std::optional<std::string> list;  // a file of layouts
  std::string scale, link, memory;
  std::int64_t ranks = 0, steps = ComparisonOptions{}.steps, tokens = 0;
  bool json = false, markdown = false, brief = false, levers = false;
};

// A layout that was asked for by name, and where: a mistake names it.
struct NamedLayout {
  std::string text, where;
  LayoutSpec layout;
  bool of_file = false, says_dp = false;
};
std::vector<NamedLayout> named_layouts(const CompareSettings& s);

// How many ranks there are to be, and who says so, for messages.
struct AskedRanks {
  std::int64_t count = 0;              // 0: each layout has its own
  std::string told;                    // "--ranks 4", before what is wrong
  std::string option = "--ranks ";     // "use --ranks 3 or …"
  std::string other = "use --ranks ";  // "leave dp out, or use --ranks 4"
};

// "1,2,4": UserError (usage) where it is no list of ranks.
std::set<std::int64_t> rank_counts(const std::string& list);

// Every layout once: first those at asked.ranks, of which a mistake is refused. Of rank counts beside it (asked.scale)
// those are left out, and noted in asked.skipped, that do not divide.
std::vector<LayoutSpec> compared_layouts(const CompareSettings& s, const std::vector<NamedLayout>& named,
                                         const RunSpec& run, const AskedRanks& ranks, CompareAsked& asked);

}  // namespace lockstep
