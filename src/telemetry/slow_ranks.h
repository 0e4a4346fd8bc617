// Which ranks are slow: a rank that computes for more than kSlower times as long as its peers, those that have the same
// work, for kSamples steps. Messages, saves and evaluations do not count, since a slow rank makes the others wait.
//
//   SlowRanks slow(peers_of(layout));
//   for (const SlowRanks::Change& change : slow.add(seconds_of_this_step)) …
//
// Steps of less than kSampleSeconds are taken together until they make that much: where many ranks share few cores, one
// of them may well have none for some milliseconds, and for twenty steps of a millisecond each. Each such sample counts
// for a rank, +1 where it was slower than that and -kPardon where it was not, never below 0; at kSamples the rank is
// slow. So twenty slow steps in a row are enough, a rank that is slow in three of four is found after some fifty, and
// one that is slow in every third by chance practically never. A slow rank is well again by the same count of samples
// in which it took less than kUsual times its peers' time. A rank without peers is never slow: nobody knows what its
// work should take.
//
// A pure state machine. One thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

namespace lockstep {

// Whose work a rank's is compared with, and how much it has of it.
struct PeerWork {
  std::int64_t peers = 0;  // ranks of the same number have the same kind of work, as those of a pipeline stage
  double share = 1;        // of two peers the one with twice the share takes twice as long
};

// What each rank would take at its peers' speed: the median of the other ranks of its kind, of an even number the upper
// one in the middle, which blames less. NaN where it has no peers.
std::vector<double> usual_of_peers(std::span<const double> seconds, std::span<const PeerWork> work);

class SlowRanks {
 public:
  static constexpr double kSlower = 2, kUsual = 1.5;
  static constexpr double kSamples = 20, kPardon = 1.5;
  static constexpr double kSampleSeconds = 0.05;  // of the slowest rank

  explicit SlowRanks(std::vector<PeerWork> work) : work_(std::move(work)), sum_(work_.size()), states_(work_.size()) {}

  struct Change {
    int rank = 0;
    bool slow = false;              // or no longer
    double seconds = 0, usual = 0;  // per step, its own and at its peers' speed; medians over the last samples
    std::int64_t steps = 0;         // that these are of
  };
  // What each rank has computed for in a step, by rank.
  std::vector<Change> add(std::span<const double> seconds);

 private:
  struct Sample {
    std::vector<double> seconds = {}, usual = {};  // per step, by rank
    std::int64_t steps = 0;
  };
  struct State {
    bool slow = false;
    double count = 0;  // towards the other
  };
  bool changes(State& state, double seconds, double usual) const;
  Change change_of(std::size_t rank) const;

  std::vector<PeerWork> work_;
  std::vector<double> sum_;     // of the sample that is being taken
  std::int64_t steps_ = 0;      // likewise
  std::deque<Sample> samples_;  // the last kSamples
  std::vector<State> states_;   // by rank
};

}  // namespace lockstep
