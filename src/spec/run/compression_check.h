// Whether what [sync] compresses is sent at all, and can be compressed in this run.
#pragma once
#include "spec/run/run_spec.h"

namespace lockstep {

// `fail` is given the key, the problem and a remedy, and throws.
using CompressionFault = std::function<void(std::string_view section, std::string_view key, const std::string& problem,
                                            const std::string& remedy)>;
void check_compression(const RunSpec& spec, const CompressionFault& fail);

}  // namespace lockstep
