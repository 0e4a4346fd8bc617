// Whether parameter servers can apply gradients when they come ([sync] kind = "async") in this run.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "spec/run/run_spec.h"

namespace lockstep {

// `fail` is given the key, the problem and a remedy, and throws.
using AsyncFault = std::function<void(std::string_view section, std::string_view key, const std::string& problem,
                                      const std::string& remedy)>;
void check_async(const RunSpec& spec, const AsyncFault& fail);

// Why workers of this run cannot die without ending it, where `lockstep launch` starts ranks as processes; "": they
// can.
std::string why_workers_may_not_die(const RunSpec& spec);

}  // namespace lockstep
