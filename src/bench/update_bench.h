// How fast the host's cores update optimizer state in the host's memory, beside what that memory gives.
//
// AdamW of flat tensors far larger than caches, in several types. Two passes that only stream memory run in turn with
// it, on the same threads and memory (kernels/cpu/ceilings.h): the better one is the ceiling. Bytes are what each pass
// has to read and to write, once: of AdamW masters, moments and gradient read, masters, moments and the copy that
// computes written. What a processor reads of lines that are only written, a triad's result and AdamW's copy, is not
// counted for either. Rates are the best of some rounds, as is usual of memory.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct UpdateRow {
  std::string types;  // of masters, moments, gradient and copy
  std::int64_t bytes_an_element = 0;
  double rate = 0, ceiling = 0;  // bytes per second
  double ratio() const { return ceiling > 0 ? rate / ceiling : 0; }
};

struct UpdateBench {
  std::vector<UpdateRow> rows;
  double in_place = 0, triad = 0;  // of all rounds
};

struct UpdateBenchOptions {
  std::int64_t elements = 32 << 20;
  int threads = 1;
  int rounds = 5;
};
UpdateBench measure_updates(const UpdateBenchOptions& options);

}  // namespace lockstep
