// Peaks of GPUs by their makers' data sheets: dense products, without sparsity.
#pragma once
#include <string_view>

namespace lockstep {

struct KnownGpu {
  std::string_view name;        // part of what the driver calls it
  double narrow, single, wide;  // FLOP/s with operands of 16, 32 and 64 bits
};

inline constexpr KnownGpu kKnownGpus[] = {
    {"H200", 989.4e12, 66.9e12, 66.9e12},            // NVIDIA H200 SXM data sheet
    {"H100 80GB HBM3", 989.4e12, 66.9e12, 66.9e12},  // NVIDIA H100 SXM data sheet
    {"H100 PCIe", 756e12, 51e12, 51e12},             // NVIDIA H100 PCIe data sheet
    {"A100", 312e12, 19.5e12, 19.5e12},              // NVIDIA A100 data sheet
};

// Null for a GPU that is not in the list.
constexpr const KnownGpu* find_gpu(std::string_view driver_name) {
  for (const KnownGpu& gpu : kKnownGpus)
    if (driver_name.find(gpu.name) != std::string_view::npos) return &gpu;
  return nullptr;
}

}  // namespace lockstep
