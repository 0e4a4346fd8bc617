// Measures this machine, as a machine file describes it (spec/machine/machine_spec.h).
//
// Rates are of one device. Of the cpu, a machine of kind threads, that is one core while all others do the same: its
// caches, memory and clock are shared. Everything runs through this program's own kernels. Of each kernel the time is
// that of the fastest quarter of its calls, on the cpu in seconds that its thread computed: what else the machine does
// makes calls longer, never shorter.
//
//   peaks       the best rate of any measured product (a known GPU: its data sheet's)
//   products    some shapes from small to large, each as x·Wᵀ, dy·W and dyᵀ·x, fitted (bench/efficiency_fit.h)
//   attention   three lengths of samples, causal, forward and backward, fitted
//   copies      y = x of fp32 tensors, from those that a first-level cache holds to those that memory must
//   kernels     those of a step at the sizes of a small model: the time of a copy of as many bytes over theirs
//   launch      a sum of 64 elements
//   sum_rate, copy_rate, intra_node.latency
//               messages between as many thread ranks as cores; under MPI between the processes of rank 0's host
//   inter_node  under MPI, between the first ranks of two hosts: one way, both ways at once, and sums over all hosts,
//               each by how much longer 8 MiB take than 1 MiB; how much slower work is beside them. The machine is one
//               of devices then, one for each rank, with its share of its host's cores
//   host, disk  of a GPU copies over its link and of the host's memory; of a folder its file system's rates
//
// At last a step of a small model: the shares of all kernels are scaled by what it took (bench/machine_step.h).
//
// Takes about fifteen seconds on a core.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/efficiency_fit.h"
#include "comm/communicator.h"
#include "tensor/device.h"

namespace lockstep {

struct MachineBenchOptions {
  Device device = Device::cpu;
  std::string name = "this-machine";
  std::optional<std::filesystem::path> disk = {};  // a folder on it
};

struct MachineBench {
  MachineSpec machine;
  std::vector<ProductTiming> products;  // that the curve is fitted to
  MachineSpec::Products curve;          // before a step scaled it
  double step_ratio = 1;                // what a step took over what kernels timed one by one say of it
  // Seconds that the curve says of a product in the type that was measured.
  double predicted(const ProductTiming& product) const;
  double peak = 0;  // of that type
};

// All but what only processes can measure. UserError (does_not_fit) where there is too little memory or disk.
MachineBench measure_this_machine(const MachineBenchOptions& options);

// Adds what processes measure between them; every rank calls it, rank 0's machine is completed. `hosts`: by rank.
void measure_links(MachineSpec& machine, Communicator& ranks, const std::vector<std::string>& hosts);

// To four digits: more are not measured.
double rounded(double measured);

}  // namespace lockstep
