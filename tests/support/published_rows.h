// Published step times, as data: what was run on what, and how long it took or how fast it was.
//
// Sources:
//   Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC'21, arXiv
//     2104.04473: Tables 1 and 2; micro-batches and virtual stages from examples/academic_paper_scripts/sc21 of
//     NVIDIA/Megatron-LM
//   Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198: Tables 3, 5
//   Llama Team, "The Llama 3 Herd of Models", arXiv 2407.21783: Table 4
//   Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241: Tables 5 and 8
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::tests {

struct PublishedRow {
  std::string name;
  std::int64_t layers, width, heads;
  std::int64_t tp, pp, dp, gpus;
  std::int64_t batch;        // samples per step
  std::int64_t micro_batch;  // samples
  std::int64_t chunks = 1;   // per stage
  double seconds = 0;        // per step; 0: see teraflops
  double teraflops = 0;      // per second and GPU, recomputation counted, as the paper counts them
  std::int64_t cp = 1;
  std::int64_t seq = 2048;
  std::int64_t tokens = 0;  // per step, where the paper states them: to within 3 %
};

// Why the row cannot be what was run, or nothing.
std::string fault_of(const PublishedRow& row);
// Seconds of a step by the operations that SC'21 counts: 96 B s l h² (1 + s/6h + V/16lh), V 51200.
double seconds_of(const PublishedRow& row);

const std::vector<PublishedRow>& korthikanti_full();       // all of a block recomputed, no sequence parallel
const std::vector<PublishedRow>& korthikanti_selective();  // attention recomputed, sequence parallel
const std::vector<PublishedRow>& sc21_table1();
const std::vector<PublishedRow>& sc21_ptdp();   // Table 2
const std::vector<PublishedRow>& sc21_zero3();  // Table 2
const std::vector<PublishedRow>& llama3();      // row 3 as printed: its fault is part of the test

// Bubble rates, by the smallest number of micro-batches first: 1F1B, interleaved, ZB-H1 and, in Table 8, ZB-V.
struct PublishedBubbles {
  std::string name;
  int stages, chunks;  // chunks of a stage of the interleaved schedule: of one layer each
  std::array<int, 3> micro;
  std::array<std::vector<double>, 3> rates;
};
const std::vector<PublishedBubbles>& zero_bubble_rates();

}  // namespace lockstep::tests
