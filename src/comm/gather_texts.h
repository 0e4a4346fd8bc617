// Every rank's text, on all ranks of a group.
//
// For what is said once, before or beside the steps: names, settings, checksums, reasons. Texts are any bytes, of any
// length, which may differ by rank. The communicator's tensors are on the host; its deadline and its failures are those
// of two gathers.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep {

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& mine);  // by rank

}  // namespace lockstep
