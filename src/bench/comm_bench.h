// How fast ranks exchange, beside what copying the same bytes costs: every algorithm, over sizes and rank counts.
//
// Ranks are threads of this process; where there are processes of MPI too, both are measured side by side (the threads
// in rank 0 while the others sleep in a barrier), and `native` is MPI's own. Only what differs is measured: `native` on
// threads is `canonical`, and operations that sum nothing go one way whatever the algorithm. Elements are fp32; a size
// is that of the whole message (comm/message.h's n), split into equal shares. Inputs and outputs are separate tensors,
// except of an all-reduce, which is in place as in training (separate for MPI's own, which is faster so). Tensors of
// processes are in their communicator's memory (Communicator::memory), as gradients are; for MPI's own, which has no
// use for that, on the heap.
//
// The copy limit: an operation must read R and write W bytes of all ranks' tensors at least, so its limit is the time
// in which as many threads (or processes) as take part copy (R + W) / 2 bytes with memcpy, each an equal share:
//
//   all_reduce      R = N n, W = N n      all_gather  R = n, W = N n         gather, scatter  R = n,   W = n
//   reduce_scatter  R = N n, W = n        broadcast   R = n, W = (N - 1) n   all_to_all       R = N n, W = N n
//   reduce          R = N n, W = n
//
// and nothing for what a group of one has in place. Everything compared takes turns: a round times each once (several
// calls, where one is short, after one that does not count), the slowest rank's time counts, and medians over rounds
// are reported; a ratio is the median of the rounds' ratios. Before it is timed, each is checked for the right result.
//
// With a link, ranks are threads alone and each has a simulated link to the others (comm/delayed.h): a call takes at
// least the link's time, which is the latency for each step of the algorithm plus the bytes of a rank over the
// bandwidth.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "spec/machine/link_spec.h"

namespace lockstep {

struct CommBenchOptions {
  std::vector<CommOp> ops = {CommOp::all_reduce};
  std::vector<Algorithm> algorithms = {};  // empty: all that differ
  std::vector<int> ranks = {};             // of threads; empty: 2, 4, 8, or as many as there are processes
  std::vector<std::int64_t> sizes = {1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26};  // bytes
  double seconds = 1;                 // for each op, rank count and size, at least
  std::optional<LinkSpec> link = {};  // under ranks that are threads
};

struct CommBenchRow {
  enum class Backend : std::uint8_t { threads, mpi };
  Backend backend;
  CommOp op;
  Algorithm algorithm;
  int ranks;
  std::int64_t bytes;   // n, in bytes
  std::int64_t sent;    // bytes that a rank sends by theory (comm/traffic.h), the most of any
  int rounds;           // that the medians are over
  double seconds;       // of one call
  double of_copy;       // the copy limit's time over this; 0: there is nothing to copy
  double over_native;   // the time of MPI's own over this; 0: there is none to compare with
  double link_seconds;  // that a simulated link takes for one call, of the rank with most; 0: there is no link
  double rate() const { return static_cast<double>(bytes) / seconds; }  // algorithm bandwidth, bytes per second
};
std::string_view name_of(CommBenchRow::Backend backend);

// Whether this can be measured at all: not what has no size (send, recv, barrier).
bool can_bench(CommOp op);
// What is to be measured, every choice made. UserError where something asked for would do nothing or cannot be
// measured, and where the tensors do not fit into memory. `processes`: of MPI; 0: none.
CommBenchOptions settle(CommBenchOptions options, int processes);

// Of settled options. Every process calls it with its communicator of all; null where there are none. `show` is called
// on rank 0 as soon as a row is known. Whether it came to its end: when `stop` becomes true on any rank, all end after
// the round at hand. CommError as the communicator has it, ProgramError where a result is wrong.
bool run_comm_bench(const CommBenchOptions& options, Communicator* processes, const std::atomic<bool>& stop,
                    const std::function<void(const CommBenchRow&)>& show);

}  // namespace lockstep
