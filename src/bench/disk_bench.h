// How fast a disk is read and written, and how much of that offloaded state gets.
//
// A file without a name, of `bytes`, is written and read from its beginning to its end, in pieces of kPiece of which
// two are under way: with several sizes of requests and numbers of them at a time. Then state of as many bytes is
// passed through windows (offload/staging.h) and nothing is done with it; its ceiling is reading and writing at once,
// measured in turn with it. Rates are medians.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

struct DiskRate {
  int depth = 0;                   // requests at a time
  std::int64_t request_bytes = 0;  // of one
  double read = 0, write = 0;      // bytes per second, one way
  double both = 0;                 // each way, both at once
};

struct DiskBench {
  bool direct = false;  // past the page cache; else these are the cache's rates
  std::vector<DiskRate> rates;
  double staged = 0, ceiling = 0;  // bytes per second, each way: windows, and both at once beside them
  double ratio() const { return ceiling > 0 ? staged / ceiling : 0; }
};

struct DiskBenchOptions {
  std::filesystem::path folder;
  std::int64_t bytes = std::int64_t{1} << 30;
  int rounds = 3;
};
DiskBench measure_disk(const DiskBenchOptions& options);

// One way and the other, with the requests that offload makes alone.
DiskRate measure_disk_each_way(const DiskBenchOptions& options);

// The ceiling alone: bytes per second each way, reading and writing at once with the requests that offload makes. Room
// for as many bytes is taken meanwhile.
double measure_disk_both_ways(const DiskBenchOptions& options);

}  // namespace lockstep
