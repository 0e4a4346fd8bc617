// What must be equal on all ranks before the first step, beside their settings (spec/run/run_settings.h): the content
// of what they read, from whatever path, and the weights that they start from.
//
// Each function gives a named value for comm/agreement.h, or what was found. All ranks call them at the same point,
// over a communicator of the host. None of it is in the records of a step.
#pragma once
#include <optional>
#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "comm/agreement.h"
#include "train/replica.h"
#include "train/run_data.h"

namespace lockstep {

NamedValues content_of(const RunData& data);
NamedValues content_of(const Checkpoint& checkpoint);
// Of the folder that weights are imported from, or of the run. Nothing where there is neither.
NamedValues imported_content(const RunSpec& spec, Communicator& ranks);

// Ranks that hold the same elements of a parameter (replicas along dp and cp, parameters that tp does not split, hybrid
// shards) compare a checksum of each: the first parameter that differs, "rank 2 has model.norm.weight = (checksum)
// 12ab…, ranks 0-1 have 34cd…". Nothing where all are equal. No step is in flight.
std::optional<std::string> find_different_weights(Communicator& ranks, const Replica& replica, Stream& stream);

}  // namespace lockstep
