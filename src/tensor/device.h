// Where elements live and work is done. `meta` holds nothing and computes nothing: it counts. On `disk` elements are
// only kept (tensor/disk/file_memory.h): there is no stream of it.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Device : std::uint8_t { cpu, meta, cuda, disk };

constexpr std::string_view name_of(Device d) {
  switch (d) {
    case Device::cpu:
      return "cpu";
    case Device::meta:
      return "meta";
    case Device::cuda:
      return "cuda";
    case Device::disk:
      return "disk";
  }
  return "?";
}

}  // namespace lockstep
