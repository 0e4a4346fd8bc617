// Where elements live and work is done. `meta` holds nothing and computes nothing: it counts.
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class Device : std::uint8_t { cpu, meta };

constexpr std::string_view name_of(Device d) { return d == Device::cpu ? "cpu" : "meta"; }

}  // namespace lockstep
