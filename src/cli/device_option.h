// The options --device and --precision of commands that take no run file.
#pragma once
#include "cli/choice_option.h"
#include "spec/model/precision.h"
#include "tensor/device.h"

namespace lockstep {

inline void add_device_option(CLI::App& command, Device& device) {
  add_choice_option<Device, Device>(command, "--device", device, {{"cpu", Device::cpu}, {"cuda", Device::cuda}},
                                    "What to compute on", "cpu");
}

// Precision, or one that may be left out.
template <class Field>
void add_precision_option(CLI::App& command, Field& precision, const std::string& usual) {
  add_choice_option<Field, Precision>(
      command, "--precision", precision,
      {{"fp64", Precision::fp64}, {"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}},
      "What to compute in", usual);
}

}  // namespace lockstep
