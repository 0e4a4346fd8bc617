// The option --device of commands that take no run file.
#pragma once
#include <CLI/CLI.hpp>

#include "tensor/device.h"

namespace lockstep {

inline void add_device_option(CLI::App& command, Device& device) {
  static const std::map<std::string, Device> kDevices{{"cpu", Device::cpu}, {"cuda", Device::cuda}};
  command.add_option("--device", device, "What to compute on: cpu or cuda [cpu]")
      ->transform(CLI::Transformer(kDevices).description(""))
      ->type_name("DEVICE");
}

}  // namespace lockstep
