// Which ranks are slow: a rank that computes for more than kSlower times as long as its peers, those that have the same
// work, for kSamples steps. Messages, saves and evaluations do not count, since a slow rank makes the others wait.
//
//   SlowRanks slow(peers_of(layout));
//   for (const SlowRanks::Change& change : slow.add(seconds_of_this_step)) …
//
// Steps of less than kSampleSeconds are taken together until they make that much: where many ranks share few cores, one
// of them may well have none for some milliseconds, and for twenty steps of a millisecond each. A rank is slow when all
// but kOutliers of the last kSamples samples say so, and no longer when the median of them is below kUsual times its
// peers'. A rank without peers is never slow: nobody knows what its work should take.
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
  static constexpr std::size_t kSamples = 20, kOutliers = 2;
  static constexpr double kSampleSeconds = 0.05;  // of the slowest rank

  explicit SlowRanks(std::vector<PeerWork> work) : work_(std::move(work)), sum_(work_.size()), slow_(work_.size()) {}

  struct Change {
    int rank = 0;
    bool slow = false;            // or no longer
    double seconds = 0, usual = 0;  // per step, its own and at its peers' speed; medians over the samples
    std::int64_t steps = 0;       // that the samples are of
  };
  // What each rank has computed for in a step, by rank.
  std::vector<Change> add(std::span<const double> seconds);

 private:
  struct Sample {
    std::vector<double> seconds = {}, usual = {};  // per step, by rank
    std::int64_t steps = 0;
  };
  std::vector<Change> look();

  std::vector<PeerWork> work_;
  std::vector<double> sum_;  // of the sample that is being taken
  std::int64_t steps_ = 0;   // likewise
  std::deque<Sample> samples_;
  std::vector<bool> slow_;
};

}  // namespace lockstep
