// One epoch of a run under its agents: which ranks there are, in which layout, and where each of them runs.
//
// Plain data. A host offers slots, numbered from 0: each runs one rank (on GPUs: the GPU of that number). An agent is
// known by its place in the list of hosts. Ranks that are threads of one process, or that mpirun starts, have one slot
// together: the leading agent's slot 0, and rank 0 stands for all.
#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct RankSlot {
  int agent = 0;
  int number = 0;
  auto operator<=>(const RankSlot&) const = default;
};

struct LaunchLayout {
  int ranks = 1;
  std::string text = {};  // as --layout takes it; empty: as the command line says
  bool operator==(const LaunchLayout&) const = default;
};

// Ranks that others do not need: workers of `line` ranks each, the first ranks of the layout, of which one may die and
// join while the others go on (train/async_steps.h). All ranks after them are needed.
struct LaunchWorkers {
  int count = 0, line = 1;  // none: every rank is needed
  int ranks() const { return count * line; }
};

struct Epoch {
  std::uint32_t number = 0;
  LaunchLayout layout = {};
  std::vector<RankSlot> slots = {};  // by rank, or the one of all
  bool resumes = false;
};

// What an agent is to start.
struct EpochOrder {
  std::uint32_t epoch = 0;
  LaunchLayout layout = {};
  bool resumes = false;
  bool joins = false;                // beside those of the epoch that run here; else in the place of all
  std::string master = "127.0.0.1";  // rank 0's host, or that of the first of a party that meets apart
  struct Place {
    int rank = 0;
    int slot = 0;
    bool operator==(const Place&) const = default;
  };
  std::vector<Place> places = {};
  bool operator==(const EpochOrder&) const = default;
};

// How a process of an epoch has ended, or that it hangs.
struct RankEnd {
  int rank = 0;
  int code = 0;            // its exit code; 128 + the signal that ended it
  bool killed = false;     // by its agent
  std::string found = {};  // why the agent takes it for hung; it still runs then
  bool operator==(const RankEnd&) const = default;
};

}  // namespace lockstep
