// `lockstep compare --sync`: techniques of [sync] beside full synchronization, and how they are shown.
#pragma once
#include <string>

#include "cli/compare_layouts.h"
#include "plan/sync_comparison.h"

namespace lockstep {

struct SyncShown {
  std::optional<LinkSpec> link = {};
  std::int64_t tokens = 0;  // that losses are after; 0: none was asked for
  int cores = 1;
  bool markdown = false;
};

std::string sync_text(const RunSpec& run, const SyncComparison& comparison, const SyncShown& shown);
std::string sync_json(const RunSpec& run, const SyncComparison& comparison, const SyncShown& shown);

// Returns the exit code.
int compare_sync_of(const CompareSettings& settings);

}  // namespace lockstep
